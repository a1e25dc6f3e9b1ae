"""Chips that were reset: the library learns of it only when it is initialised again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from trio.testing import MockClock

from tests.ascend.pacing import NODE, Paced
from trio_npu_dra.ascend.dcmi.errors import DcmiError, IdUnknown
from trio_npu_dra.ascend.faults import CARD_DROPPED
from trio_npu_dra.kit.base.health import HealthState


async def lists(paced: Paced, rounds: int) -> list[int]:
    """In which of so many rounds of ten seconds the library was initialised, from 0."""
    found = []
    for number in range(rounds):
        before = paced.dcmi.asked["init", NODE]
        await paced.jump(10)
        found += [number] * (paced.dcmi.asked["init", NODE] - before)
    return found


LOST = IdUnknown(-8008, "dcmi_get_device_health", "the device does not exist")
FAILING = DcmiError(-8005, "dcmi_get_device_health", "an ioctl call failed")


@pytest.mark.parametrize(("error", "faults"), [(LOST, [CARD_DROPPED]), (FAILING, [])])
async def test_a_chip_that_was_reset_is_found_although_nothing_else_has_changed(
    paced: Paced, mock_clock: MockClock, error: DcmiError, faults: list[int]
) -> None:
    """Neither the PCI bus nor a device node: a chip that is lost for long has the cards listed."""
    await paced.start(mock_clock)
    before = paced.board
    paced.dcmi.lost = {3: error}
    assert await lists(paced, 15) == []
    assert paced.codes(3) == faults
    assert paced.health(3).state is not HealthState.HEALTHY
    assert await lists(paced, 30) == [0]  # 150 s after the first look, and no more
    assert paced.board == before


async def test_a_chip_that_stays_lost_has_cards_listed_ever_more_rarely(
    paced: Paced, mock_clock: MockClock
) -> None:
    """Each list stops all other calls for a moment."""
    await paced.start(mock_clock)
    paced.dcmi.lost, paced.dcmi.stays_lost = {3: LOST}, True
    times = await lists(paced, 160)
    pauses = [10 * (late - early) for early, late in pairwise(times)]
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]


async def test_beside_a_hung_call_a_lost_chip_has_nothing_listed(
    paced: Paced, mock_clock: MockClock
) -> None:
    """It could not be, and the Board would say that the cards cannot be listed."""
    await paced.start(mock_clock)
    paced.dcmi.lost = {3: LOST}
    await paced.jump_into(120, ("health", 5))
    assert await lists(paced, 40) == []
    assert paced.codes(3) == [CARD_DROPPED]
    assert paced.board.gaps == ()
    before = paced.dcmi.asked["init", NODE]
    await paced.let_go()
    await paced.jump(10)
    assert paced.dcmi.asked["init", NODE] == before + 1
    assert paced.codes(3) == []


async def test_a_hung_port_keeps_no_chip_from_being_found(
    paced: Paced, mock_clock: MockClock
) -> None:
    """The library asks no port when it lists the cards."""
    await paced.start(mock_clock)
    before = paced.board
    paced.dcmi.lost = {3: LOST}
    await paced.jump_into(10, ("network", 5))
    assert len(await lists(paced, 30)) == 1
    assert paced.board == before
