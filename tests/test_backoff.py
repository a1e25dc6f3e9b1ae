"""Pauses between tries."""

from trio_npu_dra.kit.base.backoff import Backoff, spread


def test_a_pause_doubles_with_each_failure_up_to_the_limit() -> None:
    """However many failures there were."""
    backoff = Backoff(first=0.5, limit=3.0)
    assert [backoff.pause(failures) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.pause(10**9) == 3.0


def test_nodes_are_spread_over_half_of_a_pause() -> None:
    """None waits longer than the pause, and none less than half of it."""
    factors = [spread() for _ in range(100)]
    assert 0.5 <= min(factors) < 0.6
    assert 0.9 < max(factors) <= 1.0
