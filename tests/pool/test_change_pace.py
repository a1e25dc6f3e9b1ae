"""How fast changes of a pool are written."""

import pytest

from trio_npu_dra.kit.pool.change_pace import AT_ONCE, PER_SECOND, ChangePace


def delays(times: list[float]) -> list[float]:
    """What each of the changes has to wait that are due at these times, if it then happens."""
    now = 0.0
    pace = ChangePace(lambda: now)
    found = []
    for at in times:
        now = max(now, at)
        found.append(pace.delay())
        now += found[-1]
        pace.note_change()
    return found


def test_the_first_changes_wait_for_nothing() -> None:
    """As many as there are NPUs on a node, and some more."""
    assert delays([0.0] * AT_ONCE) == [0.0] * AT_ONCE


def test_a_storm_is_a_few_changes_a_second() -> None:
    """Each but the first ones waits for its turn."""
    waits = delays([0.0] * (AT_ONCE + 3))
    assert waits[AT_ONCE:] == pytest.approx([1 / PER_SECOND] * 3)


@pytest.mark.parametrize("rest", [AT_ONCE / PER_SECOND, 3600.0])
def test_after_a_rest_it_is_as_at_the_start(rest: float) -> None:
    """And no more than that after a long one."""
    waits = delays([0.0] * AT_ONCE + [rest] * (AT_ONCE + 1))
    assert waits == pytest.approx([0.0] * 2 * AT_ONCE + [1 / PER_SECOND])
