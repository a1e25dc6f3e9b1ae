import logging
from collections.abc import Awaitable
from typing import Protocol

import pytest

from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu.dcmi.client import Address, Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.npu.discovery import discover
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, ChipFamily, MultiDiePolicy, Npu
from trio_npu_dra.simulator import BoardControl, Profile, SimulatedBoard, load_profile

MIB = 1024**2
GIB = 1024**3


def unheard_of() -> Profile:
    """A machine with one chip that came after this driver."""
    chip = SERVER.chip.model_copy(update={"name": "XPU7"})
    return SERVER.model_copy(update={"chip": chip, "devices": SERVER.devices[:1]})


class Look(Protocol):
    """One look at the node."""

    def __call__(self, known: Board = EMPTY_BOARD) -> Awaitable[Board]:
        """What is there, when *known* was there before."""


SERVER = load_profile("910b4-8")


def lone() -> Profile:
    """A machine with one chip of the server."""
    return SERVER.model_copy(update={"devices": SERVER.devices[:1]})


@pytest.fixture
def look(worker: DcmiWorker, dcmi: Dcmi, host: Host) -> Look:
    """Discovers the board, knowing what the argument says."""
    return lambda known=EMPTY_BOARD: discover(worker, dcmi, host, known=known)


@pytest.fixture
async def board(look: Look, dcmi: Dcmi) -> Board:
    """What discovery finds while nothing is wrong."""
    dcmi.init()
    return await look()


async def test_an_npu_has_all_its_facts(board: Board) -> None:
    """Names, ids, memory, place and links of an NPU are what library and sysfs say."""
    assert board.driver_version == "24.1.rc2"
    assert board.unanswered == ()
    assert board.by_name["npu-0"] == Npu(
        physical_id=0,
        logic_id=0,
        card_id=0,
        device_id=0,
        family=ChipFamily.ASCEND_910B,
        chip_name="910B4",
        uuid="15C0C977-00404B31-A5120C63-26140000-10830001",
        memory_bytes=32 * GIB,
        ai_cores=20,
        pci_bus_id="0000:c1:00.0",
        pcie_root="pci0000:c0",
        numa_node=6,
        topology_group="ring-0",
        device_share=False,
    )


async def test_all_npus_are_found_in_order(board: Board) -> None:
    """Eight NPUs, by physical id, in one HCCS domain, none twice."""
    assert [npu.physical_id for npu in board.npus] == list(range(8))
    assert {npu.topology_group for npu in board.npus} == {"ring-0"}
    assert len({npu.uuid for npu in board.npus}) == 8


async def test_the_same_facts_make_the_same_board(board: Board, look: Look) -> None:
    """A second look at an unchanged node is equal to the first."""
    assert await look(board) == board


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_a3_dies_are_npus_of_a_module(board: Board) -> None:
    """Each die is an NPU, the MCU is not; dies of a card share a module, all share a ring."""
    assert [npu.module for npu in board.npus] == [f"module-{index // 2}" for index in range(16)]
    assert {npu.topology_group for npu in board.npus} == {"ring-0"}
    assert board.multi_die_policy is MultiDiePolicy.UNION
    last = board.npus[15]
    assert (last.family, last.chip_name) == (ChipFamily.ASCEND_910_A3, "Ascend910")
    assert (last.npu_name, last.memory_bytes) == ("9392", 64 * GIB)
    assert (last.super_pod_id, last.super_pod_server_index) == (7, 3)
    assert last.super_pod_sdid == 14483471


def nameless_a3() -> Profile:
    """An A3 server whose library does not know the NPU's name."""
    server = load_profile("a3-16")
    chip = server.chip.model_copy(update={"npu_name": ""})
    return server.model_copy(update={"chip": chip})


@pytest.mark.parametrize("profile", [nameless_a3()])
async def test_an_a3_is_known_by_its_board_too(board: Board) -> None:
    """Else it would be handed out as the first 910, with other device nodes."""
    assert {(npu.family, npu.npu_name) for npu in board.npus} == {(ChipFamily.ASCEND_910_A3, None)}


@pytest.mark.parametrize("profile", [load_profile("300i-duo-2")])
async def test_duo_chips_share_a_pci_address_and_no_link(board: Board) -> None:
    """Chips of a Duo are NPUs with DDR each, one PCI address, a sparse card id and no ring."""
    one, twin, *_ = board.npus
    assert (one.card_id, twin.card_id, board.npus[3].card_id) == (4, 4, 7)
    assert one.pci_bus_id == twin.pci_bus_id == "0000:81:00.0"
    assert (one.module, board.npus[3].module) == ("module-4", "module-7")
    assert (one.memory_bytes, twin.memory_bytes) == (44280 * MIB, 43693 * MIB)
    assert (one.family, one.product_name) == (ChipFamily.ASCEND_310P, "Atlas 300I Duo")
    assert {npu.topology_group for npu in board.npus} == {None}
    assert board.multi_die_policy is None


@pytest.mark.parametrize("profile", [lone()])
async def test_a_lone_chip_of_an_hccs_board_is_its_own_ring(board: Board) -> None:
    """One chip has nobody to ask a link to: its board tells that it is made for HCCS."""
    assert [npu.topology_group for npu in board.npus] == ["ring-0"]


@pytest.mark.parametrize(
    ("function", "fact"),
    [
        ("dcmi_get_device_die_v2", "uuid"),
        ("dcmi_get_device_hbm_info", "memory_bytes"),
        ("dcmi_get_device_pcie_info_v2", "pci_bus_id"),
        ("dcmi_get_device_share_enable", "device_share"),
    ],
)
@pytest.mark.parametrize("code", [-8255, -8005, -8006, -8012])
async def test_a_fact_is_none_whichever_error_keeps_it_from_being_read(
    board: Board,
    look: Look,
    control: BoardControl,
    *,
    function: str,
    fact: str,
    code: int,
) -> None:
    """Not supported, busy or not ready: it costs that fact of that NPU and nothing else."""
    control.set_return_code(function, code, 2)
    control.set_return_code("dcmi_get_device_memory_info_v3", code, 2)
    partial = await look()
    assert getattr(partial.by_name["npu-2"], fact) is None
    assert partial.npus[:2] + partial.npus[3:] == board.npus[:2] + board.npus[3:]


@pytest.mark.parametrize(
    "function", ["dcmi_get_device_logic_id", "dcmi_get_device_chip_info_v2", "dcmi_get_device_type"]
)
async def test_a_chip_that_does_not_tell_who_it_is_is_left_out(
    look: Look,
    dcmi: Dcmi,
    control: BoardControl,
    caplog: pytest.LogCaptureFixture,
    function: str,
) -> None:
    """The other seven are found; one warning, and none again while that stays so."""
    dcmi.init()
    control.set_return_code(function, -8005, 2)
    board = await look()
    assert [npu.physical_id for npu in board.npus] == [0, 1, 3, 4, 5, 6, 7]
    assert len(board.unanswered) == 1
    assert await look(board) == board
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in warnings] == [f"left out: {board.unanswered[0]}"]


async def test_a_card_that_does_not_answer_init_is_left_out(
    look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """-1 in the card list is no card; the others are found."""
    control.set_silent(5)
    dcmi.init()
    board = await look()
    assert [npu.physical_id for npu in board.npus] == [0, 1, 2, 3, 4, 6, 7]
    assert board.unanswered == ("1 of 8 cards do not answer",)


async def test_a_known_chip_that_does_not_answer_stays(
    board: Board, look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """What a chip said before is kept, whether its card or the chip alone is silent."""
    control.set_silent(5)
    control.set_return_code("dcmi_get_device_logic_id", -8012, 2)
    dcmi.init()
    fresh = await look(board)
    assert len(fresh.npus) == 8
    for silent in (2, 5):
        assert fresh.npus[silent] == board.npus[silent]


async def test_a_chip_that_is_not_listed_any_more_is_gone(
    board: Board, look: Look, dcmi: Dcmi, simulated: SimulatedBoard
) -> None:
    """A card that was taken out leaves the Board."""
    (simulated.dev_root / "davinci5").unlink()
    dcmi.init()
    fresh = await look(board)
    assert [npu.physical_id for npu in fresh.npus] == [0, 1, 2, 3, 4, 6, 7]


async def test_a_chip_that_hangs_half_way_keeps_its_name(
    dcmi: Dcmi, host: Host, control: BoardControl
) -> None:
    """A hang after the identity leaves an NPU without its other facts; the others are whole."""
    dcmi.init()
    control.hang("dcmi_get_device_die_v2", 2)
    try:
        async with open_worker(deadline_seconds=0.5) as worker:
            board = await discover(worker, dcmi, host)
    finally:
        control.release("dcmi_get_device_die_v2", 2)
    assert len(board.npus) == 8
    assert "card 2 device 0" in board.unanswered[0]  # to be read again
    assert board.npus[2].chip_name == "910B4"
    assert board.npus[2].uuid is None
    assert board.npus[3].uuid is not None


async def test_a_known_chip_that_hangs_half_way_keeps_its_facts(
    board: Board, dcmi: Dcmi, host: Host, control: BoardControl
) -> None:
    """Its die id above all, by which its faults are remembered."""
    control.hang("dcmi_get_device_die_v2", 2)
    try:
        async with open_worker(deadline_seconds=0.5) as worker:
            fresh = await discover(worker, dcmi, host, known=board)
    finally:
        control.release("dcmi_get_device_die_v2", 2)
    assert fresh.npus == board.npus


@pytest.mark.parametrize("profile", [unheard_of()])
async def test_a_chip_of_an_unknown_family_is_left_out(board: Board) -> None:
    """How to hand out a chip is not guessed; the line names it."""
    assert board.npus == ()
    assert "chip name 'XPU7' is of no family" in board.unanswered[0]


async def test_a_node_without_a_driver_version_has_none(
    look: Look, dcmi: Dcmi, control: BoardControl
) -> None:
    """A failing call for the whole node costs that fact alone."""
    dcmi.init()
    control.set_return_code("dcmi_get_driver_version", -8255)
    board = await look()
    assert board.driver_version is None
    assert len(board.npus) == 8


async def test_without_a_card_list_there_is_no_board(look: Look) -> None:
    """A library that was not initialised is an error, not an empty node."""
    with pytest.raises(DcmiError, match="dcmi_get_card_list"):
        await look()


def test_the_client_reads_what_else_is_asked_of_a_chip(dcmi: Dcmi, control: BoardControl) -> None:
    """Processes with their memory, and the health of the chip's own network port."""
    dcmi.init()
    control.set_processes(1, [(4711, 3 * GIB), (4712, 1)])
    control.set_network_health(1, 3)
    found = dcmi.processes(Address(1, 0))
    assert [(process.pid, process.memory_bytes) for process in found] == [
        (4711, 3 * GIB),
        (4712, 1),
    ]
    assert dcmi.network_health(Address(1, 0)) == 3
