"""Promises of delays and log lines between retries."""

import logging

import pytest

from trio_npu_dra.kit.api.retry import Retry
from trio_npu_dra.kit.base.errors import Unavailable, Unreadable

OUTAGE = Unavailable("get nodes n: no answer")


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The retry's clock."""
    return Clock()


@pytest.fixture
def retry(clock: Clock) -> Retry:
    """The subject."""
    return Retry("publishing", logging.getLogger("test"), first=1.0, limit=8.0, clock=clock)


def test_delays_grow_to_the_limit_with_jitter(retry: Retry) -> None:
    """Delays double up to the limit, and each is shortened by up to half at random."""
    for expected in (1, 2, 4, 8, 8, 8):
        assert expected / 2 <= retry.failed(OUTAGE) <= expected


def test_the_servers_wish_is_kept(retry: Retry) -> None:
    """Retry-After, up to a minute, is the minimum delay, with jitter on top."""
    assert 32 <= retry.failed(Unavailable("busy", status=429, retry_after=32)) <= 48
    assert 60 <= retry.failed(Unavailable("busy", status=429, retry_after=500)) <= 90


def test_a_long_outage_costs_few_lines(retry: Retry, caplog: pytest.LogCaptureFixture) -> None:
    """Of a hundred failures seven are logged, then one recovery."""
    caplog.set_level(logging.INFO)
    for _ in range(100):
        retry.failed(OUTAGE)
    retry.recovered()
    retry.recovered()
    assert len(caplog.records) == 8
    assert caplog.records[-1].getMessage() == "publishing works again"


def test_flapping_does_not_start_over(retry: Retry, clock: Clock) -> None:
    """A recovery that lasts for moments keeps the delay long; a lasting one resets it."""
    for _ in range(4):
        retry.failed(OUTAGE)
        retry.recovered()
    assert retry.failed(OUTAGE) >= 4
    retry.recovered()
    clock.now = 60
    assert retry.failed(OUTAGE) <= 1


def test_what_is_not_understood_is_asked_for_ever_more_rarely(retry: Retry, clock: Clock) -> None:
    """Pauses grow to five minutes, even if each failure comes some time after a recovery."""
    for number in range(10):
        expected = min(300.0, 2.0**number)
        assert expected / 2 <= retry.failed(Unreadable("get nodes n: odd")) <= expected
        retry.recovered()
        clock.now += 11 if expected > 32 else 0
    assert retry.failed(OUTAGE) <= 8
    retry.recovered()
    clock.now += 301
    assert retry.failed(Unreadable("get nodes n: odd")) <= 1


def test_an_outage_does_not_slow_down_what_is_not_understood(retry: Retry) -> None:
    """The first answer after it may come from a server that is just starting."""
    for _ in range(20):
        retry.failed(OUTAGE)
    assert retry.failed(Unreadable("get nodes n: odd")) <= 1
