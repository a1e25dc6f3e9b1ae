"""Pauses between tries."""

from trio_npu_dra.kit.base.backoff import Backoff, spread


def test_a_pause_doubles_with_each_failure_up_to_the_limit() -> None:
    """The limit holds for any number of failures; a factor from a half to one spreads nodes."""
    backoff = Backoff(first=0.5, limit=3.0)
    assert [backoff.pause(failures) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.pause(10**9) == 3.0
    factors = [spread() for _ in range(100)]
    assert 0.5 <= min(factors) < 0.6
    assert 0.9 < max(factors) <= 1.0
