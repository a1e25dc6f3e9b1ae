"""Nodes whose library is old, and nodes with boards of several kinds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dev.rig.looking import changed
from trio_npu_dra.ascend.container import shared_nodes
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import NotSupported
from trio_npu_dra.ascend.dcmi.types import ChipInfo, ChipRef, Memory
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.discovery import discover
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board, ChipFamily
from trio_npu_dra.ascend.offers import OfferKind, offers
from trio_npu_dra.lab.simulator import Profile, SimulatedBoard, load_profile
from trio_npu_dra.lab.simulator.profile import DeviceFacts

NEWER_FUNCTIONS = (
    "dcmi_get_device_die_v2",
    "dcmi_get_device_chip_info_v2",
    "dcmi_get_device_share_enable",
    "dcmi_get_multi_die_policy",
    "dcmi_get_topo_info_by_device_id",
    "dcmi_get_device_info",
    "dcmi_get_device_pcie_info_v2",
)


def remove_functions(library: Path, *names: str) -> None:
    """Take functions out of a library's table of symbols."""
    content = library.read_bytes()
    for name in names:
        symbol = f"\0{name}\0".encode()
        assert content.count(symbol) >= 1, name
        content = content.replace(symbol, b"\0-" + symbol[2:])
    library.write_bytes(content)


@pytest.mark.parametrize("profile", [changed(load_profile("a3-16"), 4)])
async def test_a_library_without_the_newer_functions_costs_their_facts_alone(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host
) -> None:
    """Nothing is left to ask, and the dies of a card go together."""
    remove_functions(simulated.library, *NEWER_FUNCTIONS)
    dcmi = Dcmi.load(simulated.root)
    dcmi.init()
    board = await discover(worker, dcmi, host)
    assert board.gaps == ()
    assert board.multi_die_policy is None
    assert [offer.name for offer in offers(board)] == ["module-0", "module-1"]
    first = board.chips[0]
    assert (first.family, first.chip_name) == (ChipFamily.ASCEND_910_A3, "Ascend910")
    assert (first.memory_bytes, first.ai_cores) == (64 * 1024**3, 24)
    unknown = (first.npu_name, first.uuid, first.pci_bus_id, first.device_share, first.super_pod_id)
    assert unknown == (None,) * 5


def numbered(profile: Profile, first: int) -> Profile:
    """The profile with other card ids."""
    told = [device.model_dump(by_alias=True, mode="json") for device in profile.devices]
    devices = [
        DeviceFacts.model_validate_json(json.dumps(one | {"cardId": first + one["cardId"]}))
        for one in told
    ]
    return profile.model_copy(update={"devices": devices})


@pytest.mark.parametrize(
    ("profile", "first"),
    [(numbered(load_profile("a3-16"), first), first) for first in (32, 100, 32768)],
)
async def test_card_ids_begin_at_any_number(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, first: int
) -> None:
    """As on real hosts; both dies of each card are found."""
    dcmi.init()
    board = await discover(worker, dcmi, host)
    assert [chip.card_id for chip in board.chips] == [first + number // 2 for number in range(16)]
    assert board.gaps == ()
    assert [offer.name for offer in offers(board)] == [f"module-{first + n}" for n in range(8)]


class WithoutDomains(Dcmi):
    """A library that does not tell the domain of a PCI address."""

    def pci_bus_id(self, chip: ChipRef) -> str:
        """The address without it."""
        return super().pci_bus_id(chip).partition(":")[2]


async def test_a_domain_that_the_library_does_not_tell_is_that_of_the_bus(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host, board: Board
) -> None:
    """No address is guessed: it is unknown if two domains have the place, or none."""
    dcmi = WithoutDomains.load(simulated.root)
    dcmi.init()
    assert await discover(worker, dcmi, host) == board
    bus = simulated.sysfs_root / "bus/pci/devices"
    (bus / "0001:01:00.0").symlink_to(bus / "0000:01:00.0")
    (bus / "0000:41:00.0").unlink()
    fresh = await discover(worker, dcmi, host)
    told = {chip.name: chip.pci_bus_id for chip in board.chips}
    unknown = {
        name for name, address in told.items() if address in {"0000:01:00.0", "0000:41:00.0"}
    }
    assert {chip.name for chip in fresh.chips if chip.pci_bus_id is None} == unknown
    assert len(unknown) == 2


class Mixed(Dcmi):
    """A library of a node whose last two cards are an A3 module and a 300I Pro."""

    def chip_info(self, chip: ChipRef) -> ChipInfo:
        """Names of three kinds."""
        names = {6: "Ascend910", 7: "310P3"}
        name = names.get(chip.ids[0], "910B4")
        return replace(super().chip_info(chip), chip_name=name, npu_name=name)

    def board_id(self, chip: ChipRef) -> int:
        """Kinds of boards."""
        return {6: 0xB3, 7: 0x64}.get(chip.ids[0]) or super().board_id(chip)

    def hbm(self, chip: ChipRef) -> Memory:
        """None on a 310P."""
        if chip.ids[0] == 7:
            raise NotSupported(-8255, "dcmi_get_device_hbm_info")
        return super().hbm(chip)

    def ddr(self, chip: ChipRef) -> Memory:
        """On a 310P alone."""
        if chip.ids[0] != 7:
            raise NotSupported(-8255, "dcmi_get_device_memory_info_v3")
        return Memory(size_mib=21527, used_mib=0)


async def test_boards_of_several_kinds_are_read_each_by_its_own_rules(
    simulated: SimulatedBoard, worker: DcmiWorker, host: Host
) -> None:
    """Family, memory and nodes are the chip's, and no HCCS domain crosses families."""
    dcmi = Mixed.load(simulated.root)
    dcmi.init()
    board = await discover(worker, dcmi, host)
    families = [chip.family for chip in board.chips]
    assert families[5:] == [
        ChipFamily.ASCEND_910B,
        ChipFamily.ASCEND_910_A3,
        ChipFamily.ASCEND_310P,
    ]
    assert [chip.memory_bytes for chip in board.chips[5:]] == [
        32 * 1024**3,
        32 * 1024**3,
        21527 * 1024**2,
    ]
    assert [chip.topology_group for chip in board.chips[:6]] == ["ring-0"] * 6
    assert [chip.topology_group for chip in board.chips[6:]] == ["ring-1", None]
    assert {offer.kind for offer in offers(board)} == {OfferKind.NPU}
    assert "npu-6" not in {offer.name for offer in offers(board)}  # a lone die
    (simulated.dev_root / "vpc").symlink_to("/dev/null")
    with_vpc = [
        family
        for family in dict.fromkeys(families)
        if "/dev/vpc" in {node.path for node in shared_nodes(host, family)}
    ]
    assert with_vpc == [ChipFamily.ASCEND_310P]
