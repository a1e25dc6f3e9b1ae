"""Chips that were reset: the library learns of it only when it is initialised anew."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from dev.rig.looking import Relay
from tests.ascend.pacing import NODE, Counted, Paced
from trio_npu_dra.ascend.dcmi.errors import DcmiError, DeviceLost
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.faults import CARD_DROPPED
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.lab.simulator import SimulatedBoard


class Outdated(Counted):
    """A library that answers about some cards with an error until it is initialised anew.

    Attributes:
        lost: The error of each such card.
        stays: Whether initialising does not help.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lost: dict[int, DcmiError] = {}
        self.stays = False

    def init(self) -> None:
        """Learn which cards there are now."""
        if not self.stays:
            self.lost.clear()
        super().init()

    def health(self, address: ChipRef) -> int:
        """The error, if there is one."""
        self._refuse(address)
        return super().health(address)

    def boot_status(self, chip: ChipRef) -> int:
        """The same."""
        self._refuse(chip)
        return super().boot_status(chip)

    def _refuse(self, chip: ChipRef) -> None:
        if error := self.lost.get(chip.ids[0]):
            raise error


@pytest.fixture
def outdated(simulated: SimulatedBoard) -> Iterator[Outdated]:
    """The board's library; what was held up goes on at the end."""
    dcmi = Outdated.load(simulated.root)
    yield dcmi
    for gate in dcmi.held.values():
        gate.set()


@pytest.fixture
def paced(
    nursery: trio.Nursery, relay: Relay, outdated: Outdated, host: Host, tmp_path: Path
) -> Paced:
    """A watcher of it that looks every ten seconds."""
    return Paced(nursery, relay, outdated, host, tmp_path)


async def lists(paced: Paced, outdated: Outdated, rounds: int) -> list[int]:
    """In which of so many rounds of ten seconds the library was initialised, from 0."""
    found = []
    for number in range(rounds):
        before = outdated.asked["init", NODE]
        await paced.jump(10)
        found += [number] * (outdated.asked["init", NODE] - before)
    return found


LOST = DeviceLost(-8008, "dcmi_get_device_health", "the device does not exist")
FAILING = DcmiError(-8005, "dcmi_get_device_health", "an ioctl call failed")


@pytest.mark.parametrize(("error", "faults"), [(LOST, [CARD_DROPPED]), (FAILING, [])])
async def test_a_chip_that_was_reset_is_found_although_nothing_else_tells_of_it(
    paced: Paced, outdated: Outdated, mock_clock: MockClock, error: DcmiError, faults: list[int]
) -> None:
    """Neither the PCI bus nor a device node has changed: lost for long is reason for a new list."""
    await paced.start(mock_clock)
    before = paced.board
    outdated.lost = {3: error}
    assert await lists(paced, outdated, 15) == []
    assert paced.codes(3) == faults
    assert paced.health(3).state is not HealthState.HEALTHY
    assert await lists(paced, outdated, 30) == [0]  # 150 s after the first look, and no more
    assert paced.board == before


async def test_a_chip_that_stays_lost_has_cards_listed_ever_more_rarely(
    paced: Paced, outdated: Outdated, mock_clock: MockClock
) -> None:
    """Each list stops all other calls for a moment."""
    await paced.start(mock_clock)
    outdated.lost, outdated.stays = {3: LOST}, True
    times = await lists(paced, outdated, 160)
    pauses = [10 * (late - early) for early, late in pairwise(times)]
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]


async def test_beside_a_hung_call_a_lost_chip_has_nothing_listed(
    paced: Paced, outdated: Outdated, mock_clock: MockClock
) -> None:
    """It could not be, and the Board would say that the cards cannot be listed."""
    await paced.start(mock_clock)
    outdated.lost = {3: LOST}
    await paced.jump_into(120, ("health", 5))
    assert await lists(paced, outdated, 40) == []
    assert paced.codes(3) == [CARD_DROPPED]
    assert paced.board.gaps == ()
    before = outdated.asked["init", NODE]
    await paced.let_go()
    await paced.jump(10)
    assert outdated.asked["init", NODE] == before + 1
    assert paced.codes(3) == []


async def test_a_hung_port_keeps_no_chip_from_being_found(
    paced: Paced, outdated: Outdated, mock_clock: MockClock
) -> None:
    """The library asks no port when it lists the cards."""
    await paced.start(mock_clock)
    before = paced.board
    outdated.lost = {3: LOST}
    await paced.jump_into(10, ("network", 5))
    assert len(await lists(paced, outdated, 30)) == 1
    assert paced.board == before
