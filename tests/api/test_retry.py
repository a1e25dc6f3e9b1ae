"""Delays and log lines between retries."""

import logging

import pytest
from trio.testing import MockClock

from trio_npu_dra.kit.api.retry import Retry
from trio_npu_dra.kit.base.errors import Unavailable, Unreadable

OUTAGE = Unavailable("get nodes n: no answer")
ODD = Unreadable("get nodes n: odd")


@pytest.fixture
def retry() -> Retry:
    """The subject."""
    return Retry("publishing", logging.getLogger("test"), limit=8.0)


def test_delays_grow_to_the_limit_with_jitter(retry: Retry) -> None:
    """Delays double up to the limit, and jitter shortens each by up to half."""
    for expected in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8, 8):
        assert expected / 2 <= retry.failed(OUTAGE) <= expected


def test_the_servers_wish_is_the_minimum(retry: Retry) -> None:
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


async def test_flapping_does_not_start_over(retry: Retry, mock_clock: MockClock) -> None:
    """A recovery that lasts for moments keeps the delay long; a lasting one resets it."""
    for _ in range(6):
        retry.failed(OUTAGE)
        retry.recovered()
    assert retry.failed(OUTAGE) >= 4
    retry.recovered()
    mock_clock.jump(60)
    assert retry.failed(OUTAGE) <= 0.2


async def test_pauses_after_unreadable_answers_grow_to_minutes(
    retry: Retry, mock_clock: MockClock
) -> None:
    """They grow even if each failure comes some time after a recovery, as the same event does."""
    for number in range(14):
        expected = min(300.0, 0.2 * 2.0**number)
        assert expected / 2 <= retry.failed(ODD) <= expected
        retry.recovered()
        mock_clock.jump(11)
    assert retry.failed(OUTAGE) <= 8
    retry.recovered()
    mock_clock.jump(301)
    assert retry.failed(ODD) <= 0.2


def test_an_outage_does_not_slow_down_unreadable_answers(retry: Retry) -> None:
    """The first answer after it may come from a server that is just starting."""
    for _ in range(20):
        retry.failed(OUTAGE)
    assert retry.failed(ODD) <= 0.2
