"""Delays and log lines between retries, and turns to write changes."""

import logging

import pytest
import trio
from trio.testing import MockClock

from trio_npu_dra.kit.base.errors import Unavailable, Unreadable
from trio_npu_dra.kit.base.pace import AT_ONCE, PER_SECOND, Backoff, ChangePace, Retry

OUTAGE = Unavailable("get nodes n: no answer")
ODD = Unreadable("get nodes n: odd")


@pytest.fixture
def retry() -> Retry:
    """The subject."""
    return Retry("publishing", logging.getLogger("test"), limit=8.0)


async def test_delays_grow_to_the_limit_with_jitter(retry: Retry) -> None:
    """Delays double up to the limit, for any number of failures; jitter shortens each."""
    for expected in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8, 8):
        assert expected / 2 <= retry.failed(OUTAGE) <= expected
    found = [retry.failed(OUTAGE) for _ in range(2000)]
    assert 4 <= min(found) < 5
    assert 7 < max(found) <= 8


async def test_the_servers_wish_is_the_minimum(retry: Retry) -> None:
    """Retry-After, up to a minute, is the minimum delay, with jitter on top."""
    assert 32 <= retry.failed(Unavailable("busy", status=429, retry_after=32)) <= 48
    assert 60 <= retry.failed(Unavailable("busy", status=429, retry_after=500)) <= 90


async def test_a_long_outage_costs_few_lines(
    retry: Retry, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has seven of a hundred failures, then one recovery."""
    caplog.set_level(logging.INFO)
    for _ in range(100):
        retry.failed(OUTAGE)
    retry.recovered()
    retry.recovered()
    assert len(caplog.records) == 8
    assert caplog.records[-1].levelno == logging.INFO


@pytest.mark.parametrize(("limit", "quiet"), [(8.0, 30.0), (60.0, 120.0)])
async def test_the_delay_is_short_again_after_a_quiet_time(
    limit: float, quiet: float, mock_clock: MockClock
) -> None:
    """Not sooner: a recovery for moments, or one edit a minute, is still the same trouble."""
    backoff = Backoff(limit=limit)
    for _ in range(20):
        delay = backoff.failed()
    mock_clock.jump(delay + quiet - 1)
    delay = backoff.failed()
    assert delay >= limit / 2
    mock_clock.jump(delay + quiet + 1)
    assert backoff.failed() <= 0.2


async def test_pauses_after_unreadable_answers_grow_to_minutes(
    retry: Retry, mock_clock: MockClock
) -> None:
    """They grow even if each failure comes some time after a recovery, as the same event does."""
    for number in range(14):
        expected = min(300.0, 0.2 * 2.0**number)
        delay = retry.failed(ODD)
        assert expected / 2 <= delay <= expected
        mock_clock.jump(delay + 11)


async def test_an_outage_does_not_slow_down_unreadable_answers(retry: Retry) -> None:
    """The first answer after it may come from a server that is just starting."""
    for _ in range(20):
        retry.failed(OUTAGE)
    assert retry.failed(ODD) <= 0.2


async def test_unreadable_answers_do_not_slow_down_the_end_of_an_outage(retry: Retry) -> None:
    """They say nothing of how long a server stays away."""
    for _ in range(20):
        retry.failed(ODD)
    assert retry.failed(OUTAGE) <= 0.2


async def waits_for_turns(times: list[float]) -> list[float]:
    """How long changes that are due at these times wait."""
    pace, found = ChangePace(), []
    for at in times:
        await trio.sleep_until(at)
        since = trio.current_time()
        await pace.turn()
        found.append(trio.current_time() - since)
    return found


@pytest.mark.parametrize("rest", [0.0, AT_ONCE / PER_SECOND, 3600.0])
async def test_a_storm_is_a_few_changes_a_second(rest: float, autojump_clock: MockClock) -> None:
    """The first changes wait for nothing, as many again do after a rest, and no more."""
    del autojump_clock
    before = [] if rest == 0 else [0.0] * AT_ONCE
    waits = await waits_for_turns(before + [rest] * (AT_ONCE + 3))
    assert waits == pytest.approx([0.0] * (len(before) + AT_ONCE) + [1 / PER_SECOND] * 3)
