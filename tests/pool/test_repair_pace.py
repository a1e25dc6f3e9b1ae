"""How fast repairs follow one another."""

import pytest

from trio_npu_dra.kit.pool.repair_pace import REPAIR_LIMIT, RepairPace


def delays(pauses: list[float]) -> list[float]:
    """What each repair has to wait that is due so many seconds after the one before was made."""
    now = 1000.0
    pace = RepairPace(lambda: now)
    found = []
    for pause in pauses:
        now += pause
        found.append(pace.delay())
        now += found[-1]
        pace.note_repair()
    return found


def test_in_a_fight_repairs_get_ever_slower() -> None:
    """Two at once, then twice as long each time, up to a minute."""
    assert delays([0.0] * 12) == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_the_longest_fight_is_a_repair_a_minute() -> None:
    """No number grows without end."""
    assert delays([0.0] * 5000)[-1] == REPAIR_LIMIT


@pytest.mark.parametrize(
    ("rest", "expected"), [(2 * REPAIR_LIMIT, [2, 4, 8]), (2 * REPAIR_LIMIT + 1, [0, 0, 1])]
)
def test_after_two_quiet_minutes_the_fight_is_over(rest: float, expected: list[float]) -> None:
    """Not sooner: an editor who comes once a minute is still the same."""
    assert delays([0.0, 0.0, 0.0, rest, 0.0, 0.0])[3:] == expected
