"""A library that answers, and what it says is empty, odd or of another chip."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from dev.rig.looking import SERVER, changed
from tests.ascend.conftest import Card
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import (
    ChipInfo,
    ChipRef,
    DieKind,
    Memory,
    SuperPodPlace,
    VDevice,
)
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.discovery import discover
from trio_npu_dra.ascend.division_poll import read_division
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD
from trio_npu_dra.ascend.offers import offers
from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard, load_profile

ONES = (0xFFFF_FFFF,) * 5


class Terse(Dcmi):
    """A library that answers, and says nothing with it."""

    def driver_version(self) -> str:
        """Empty."""
        return ""

    def product_type(self, address: ChipRef) -> str:
        """Empty."""
        del address
        return ""

    def chip_info(self, address: ChipRef) -> ChipInfo:
        """Without AI cores, or with more than there can be."""
        return replace(super().chip_info(address), ai_cores=0 if address.ids[0] else ONES[0])

    def die_id(self, address: ChipRef, kind: DieKind) -> tuple[int, ...]:
        """Nothing, but for the second card."""
        del kind
        return ONES if address.ids[0] == 2 else (0, 0, 0, 0, address.ids[0])

    def pci_bus_id(self, address: ChipRef) -> str:
        """What most hosts have a bridge at."""
        del address
        return "0000:00:00.0"

    def hbm(self, address: ChipRef) -> Memory:
        """None, as on chips with DDR, or more than there can be."""
        return Memory(size_mib=0 if address.ids[0] else 2**64 - 1, used_mib=0)


@pytest.mark.parametrize("profile", [changed(SERVER, 3)])
async def test_an_empty_answer_is_no_fact(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host
) -> None:
    """Above all not a die id that all chips would share; a zero in one is a digit."""
    dcmi = Terse.load(simulated.root)
    dcmi.init()
    board = await discover(worker, dcmi, host)
    first, second, third = board.chips
    assert board.driver_version is None
    assert (first.product_name, first.uuid, first.memory_bytes, first.ai_cores) == (None,) * 4
    assert (first.pci_bus_id, first.pcie_root, first.numa_node, third.uuid) == (None,) * 4
    assert second.uuid == "00000000-00000000-00000000-00000000-00000001"


@pytest.mark.parametrize("profile", [changed(SERVER, 1), changed(load_profile("300i-duo-2"), 2)])
async def test_an_empty_answer_takes_no_known_fact_from_a_chip(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host
) -> None:
    """Without its die id or PCI address it were another chip; a Duo without its name were cut."""

    class Later(Terse):
        def die_id(self, address: ChipRef, kind: DieKind) -> tuple[int, ...]:
            del address, kind
            return ONES

    dcmi = Dcmi.load(simulated.root)
    dcmi.init()
    board = await discover(worker, dcmi, host)
    later = Later.load(simulated.root)
    later.init()
    fresh = await discover(worker, later, host, known=board)
    assert (fresh.chips, fresh.driver_version) == (board.chips, board.driver_version)


class Alike(Dcmi):
    """A library that gives the first chip's facts for some chips.

    Attributes:
        alike: The cards of these chips.
    """

    alike: frozenset[int] = frozenset(range(8))

    def _first(self, chip: ChipRef) -> ChipRef:
        return ChipRef(0, 0) if chip.ids[0] in self.alike else chip

    def die_id(self, chip: ChipRef, kind: DieKind) -> tuple[int, ...]:
        """One for several."""
        return (1, 2, 3, 4, 5) if chip.ids[0] in self.alike else super().die_id(chip, kind)

    def pci_bus_id(self, chip: ChipRef) -> str:
        """One for several."""
        return super().pci_bus_id(self._first(chip))

    def vnpus(self, chip: ChipRef) -> tuple[int, ...]:
        """One for several."""
        return super().vnpus(self._first(chip))

    def vdevice(self, chip: ChipRef, vdev_id: int) -> VDevice:
        """One for several."""
        return super().vdevice(self._first(chip), vdev_id)


@pytest.mark.parametrize("was_known", [False, True])
async def test_what_several_chips_give_tells_none_of_them_apart(
    simulated: SimulatedBoard,
    control: BoardControl,
    worker: DcmiWorker,
    host: Host,
    *,
    was_known: bool,
) -> None:
    """Else they had one memory of faults, and one vNPU had two names; known facts stay."""
    dcmi = Alike.load(simulated.root)
    control.create_vnpu(0, "vir05_1c_8g")
    dcmi.init()
    dcmi.alike = frozenset()
    board = await discover(worker, dcmi, host)
    dcmi.alike = frozenset(range(8))
    fresh = await discover(worker, dcmi, host, known=board if was_known else EMPTY_BOARD)
    faults = NodeFaults(None)
    assert len({id(faults.of(chip)) for chip in fresh.chips}) == 8
    assert all(chip.is_listed for chip in fresh.chips)
    told = [(chip.uuid, chip.pci_bus_id, chip.numa_node) for chip in fresh.chips]
    known = [(chip.uuid, chip.pci_bus_id, chip.numa_node) for chip in board.chips]
    assert told == (known if was_known else [(None, None, None)] * 8)
    parts = [offer.name for offer in offers(fresh) if offer.partition]
    assert parts == (["npu-0-vnpu-100"] if was_known else [])
    assert [line.split(" give one ")[1].split(",")[0] for line in fresh.unanswered] == [
        "die id",
        "PCI address",
        "vNPU",
    ]
    divided = await read_division(worker, dcmi, fresh)
    assert divided.chips == fresh.chips
    dcmi.alike = frozenset()
    assert (await discover(worker, dcmi, host, known=fresh)).chips == board.chips


async def test_chips_that_give_one_die_id_have_their_own_faults_while_either_is_away(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host, card: Card
) -> None:
    """Else the one that stays alone with the die id got the fault of the other."""
    dcmi = Alike.load(simulated.root)
    dcmi.alike = frozenset({0, 5})
    faults, board = NodeFaults(None), EMPTY_BOARD
    other = simulated.dev_root / "davinci0"

    async def look() -> None:
        nonlocal board
        dcmi.init()
        board = await discover(worker, dcmi, host, known=board)
        for chip in board.chips:
            faults.of(chip).confirm_and_take(HealthSample(gone=chip.gone), 0.0)
        judged = faults.judge(board)
        assert [chip.name for chip in judged.chips if chip.health.faults] == [
            chip.name for chip in board.chips if chip.gone
        ]

    await look()
    for _ in range(2):
        card.unlist()
        for _ in range(3):
            await look()
        assert [chip.name for chip in board.chips if chip.gone] == ["npu-5"]
        card.put_back()
        await look()
        other = other.rename(simulated.root / "away")
        for _ in range(3):
            await look()
        assert [chip.name for chip in board.chips if chip.gone] == ["npu-0"]
        other = other.rename(simulated.dev_root / "davinci0")
        await look()


async def test_a_chip_that_says_that_it_is_no_npu_is_gone_only_when_it_leaves_the_bus(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host
) -> None:
    """Else a wrong answer in two lists evicted its pods, though it works."""

    class Posing(Dcmi):
        is_posing = False

        def is_npu(self, chip: ChipRef) -> bool:
            return super().is_npu(chip) and not (self.is_posing and chip.ids[0] == 5)

    dcmi = Posing.load(simulated.root)
    dcmi.init()
    first = board = await discover(worker, dcmi, host)
    dcmi.is_posing = True
    for _ in range(3):
        board = await discover(worker, dcmi, host, known=board)
        assert board.chips == first.chips
        assert "card 5 device 0: it says that it is no NPU" in board.unanswered[0]
    (simulated.sysfs_root / "bus/pci/devices/0000:41:00.0").rename(simulated.root / "away")
    board = await discover(worker, dcmi, host, known=board)
    assert [chip.name for chip in board.chips if chip.gone] == ["npu-5"]


class Slip(Dcmi):
    """A library that misreads npu-3.

    Attributes:
        misread: What it misreads; empty is nothing.
    """

    misread = ""

    def die_id(self, chip: ChipRef, kind: DieKind) -> tuple[int, ...]:
        """Only a part of it may be written."""
        words = super().die_id(chip, kind)
        is_hit = chip.ids[0] == 3 and self.misread == "die id"
        return (words[0], 0, 0, 0, 0) if is_hit else words

    def physical_id(self, logic_id: int) -> int:
        """It may be a number that no chip has."""
        is_hit = logic_id == 3 and self.misread == "physical id"
        return 9 if is_hit else super().physical_id(logic_id)


@pytest.mark.parametrize("misread", ["die id", "physical id"])
async def test_a_chip_is_another_one_when_two_lists_say_so(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host, misread: str
) -> None:
    """Its faults, its holders and the vNPUs of claims go then; until then it is unmonitored."""
    dcmi = Slip.load(simulated.root)
    dcmi.init()
    board = await discover(worker, dcmi, host)
    dcmi.misread = misread
    once = await discover(worker, dcmi, host, known=board)
    assert once.chips[3] == replace(board.chips[3], unlisted=True)
    assert len(once.chips) == 8
    assert "it says that it is npu-" in once.unanswered[0]
    twice = await discover(worker, dcmi, host, known=once)
    assert board.chips[3].key not in {chip.key for chip in twice.chips if chip.name == "npu-3"}
    assert len(twice.chips) == 8
    assert twice.unanswered == ()
    dcmi.misread = ""
    assert await discover(worker, dcmi, host, known=once) == board


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_dies_that_change_places_do_so_in_the_second_list(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host
) -> None:
    """As when an Ascend driver renumbers them; no die is there twice, none is lost."""

    class Swapped(Dcmi):
        is_swapped = False

        def physical_id(self, logic_id: int) -> int:
            number = super().physical_id(logic_id)
            return number ^ 2 if self.is_swapped and number < 4 else number

    dcmi = Swapped.load(simulated.root)
    dcmi.init()
    board = await discover(worker, dcmi, host)
    dcmi.is_swapped = True
    once = await discover(worker, dcmi, host, known=board)
    assert [chip.unlisted for chip in once.chips] == [True] * 4 + [False] * 12
    twice = await discover(worker, dcmi, host, known=once)
    assert [chip.uuid for chip in twice.chips[:4]] == [board.chips[n].uuid for n in (2, 3, 0, 1)]
    assert all(chip.is_listed for chip in twice.chips)
    assert len(twice.chips) == len({chip.uuid for chip in twice.chips}) == 16


@pytest.mark.parametrize("profile", [changed(load_profile("a3-16"), 2)])
async def test_one_odd_answer_takes_no_cores_and_no_super_pod_from_a_chip(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host
) -> None:
    """Nothing would have these be asked again soon."""

    class Sparse(Dcmi):
        lapses: ClassVar[set[ChipRef]] = set()

        def chip_info(self, chip: ChipRef) -> ChipInfo:
            info = super().chip_info(chip)
            return replace(info, ai_cores=0) if chip in self.lapses else info

        def super_pod(self, chip: ChipRef) -> SuperPodPlace | None:
            place = super().super_pod(chip)
            if chip in self.lapses:
                self.lapses.remove(chip)
                return None
            return place

    dcmi = Sparse.load(simulated.root)
    dcmi.init()
    board = await discover(worker, dcmi, host)
    dcmi.lapses.update(chip.ref for chip in board.chips)
    assert await discover(worker, dcmi, host, known=board) == board
    assert not dcmi.lapses
