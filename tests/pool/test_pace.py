"""How fast changes of a pool are written, and how fast repairs follow one another."""

import pytest
import trio
from trio.testing import MockClock

from trio_npu_dra.kit.pool.pace import AT_ONCE, PER_SECOND, REPAIR_LIMIT, ChangePace, RepairPace


async def change_delays(times: list[float]) -> list[float]:
    """The delays of changes that are due at these times, each written after its delay."""
    pace, found = ChangePace(), []
    for at in times:
        await trio.sleep_until(at)
        found.append(pace.delay())
        await trio.sleep(found[-1])
        pace.note_change()
    return found


async def repair_delays(pauses: list[float]) -> list[float]:
    """The delays of repairs that are due so many seconds after the one before was made."""
    pace, found = RepairPace(), []
    for pause in pauses:
        await trio.sleep(pause)
        found.append(pace.delay())
        await trio.sleep(found[-1])
        pace.note_repair()
    return found


@pytest.mark.parametrize("rest", [0.0, AT_ONCE / PER_SECOND, 3600.0])
async def test_a_storm_is_a_few_changes_a_second(rest: float, autojump_clock: MockClock) -> None:
    """The first changes wait for nothing, as many again do after a rest, and no more."""
    del autojump_clock
    before = [] if rest == 0 else [0.0] * AT_ONCE
    waits = await change_delays(before + [rest] * (AT_ONCE + 3))
    assert waits == pytest.approx([0.0] * (len(before) + AT_ONCE) + [1 / PER_SECOND] * 3)


async def test_in_a_fight_repairs_get_ever_slower(autojump_clock: MockClock) -> None:
    """Two without a delay, then twice as long each time, up to a minute, however long it takes."""
    del autojump_clock
    delays = await repair_delays([0.0] * 1200)
    assert delays[:10] == [0, 0, 1, 2, 4, 8, 16, 32, REPAIR_LIMIT, REPAIR_LIMIT]
    assert delays[-1] == REPAIR_LIMIT


@pytest.mark.parametrize(
    ("rest", "expected"), [(2 * REPAIR_LIMIT, [2, 4, 8]), (2 * REPAIR_LIMIT + 1, [0, 0, 1])]
)
async def test_after_two_quiet_minutes_the_fight_is_over(
    rest: float, expected: list[float], autojump_clock: MockClock
) -> None:
    """Not sooner: one edit a minute is still the same fight."""
    del autojump_clock
    assert (await repair_delays([0.0, 0.0, 0.0, rest, 0.0, 0.0]))[3:] == expected
