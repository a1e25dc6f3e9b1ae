"""Boards with Ascend 950: `dcmiv2_*` serves them, and `dcmi_*` says that it does not."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.simulator.conftest import RawDcmi
from tests.simulator.subscribing import LIMIT, Filter, described, subscribe_by_dev_id
from trio_npu_dra.lab.simulator import (
    BoardControl,
    Severity,
    SimulatedBoard,
    load_profile,
    profile_names,
    simulated_functions,
)

if TYPE_CHECKING:
    from tests.simulator.conftest import MakeBoard

NOT_SUPPORT = -8255
UNLISTED = -8001
UNKNOWN_HEALTH = 0xFFFF_FFFF
VDIE, DDIE = 1, 2
ON_PCI, ON_UB = "950-card-4", "950-pod-8"
HEALTH = "dcmiv2_get_device_health"


def load(library: Path) -> RawDcmi:
    """The library of a 950, initialised."""
    dcmi = RawDcmi(library)
    assert dcmi.code("dcmiv2_init") == 0
    return dcmi


def code(dcmi: RawDcmi, function: str, *arguments: int) -> int:
    """The return code of a call with one out-parameter."""
    return dcmi.code(function, *arguments, ctypes.create_string_buffer(4096))


def listed(dcmi: RawDcmi) -> list[int]:
    """The dev ids."""
    ids, count = (ctypes.c_int * 64)(), ctypes.c_int()
    assert dcmi.code("dcmiv2_get_device_list", ids, ctypes.byref(count), 64) == 0
    return list(ids[: count.value])


@pytest.fixture(params=[ON_PCI, ON_UB])
def board(request: pytest.FixtureRequest, make_board: MakeBoard) -> SimulatedBoard:
    """One kind of 950 after the other."""
    return make_board(request.param)


@pytest.fixture
def dcmi(board: SimulatedBoard) -> RawDcmi:
    """That board's library, initialised."""
    return load(board.library)


@pytest.fixture
def control(board: SimulatedBoard) -> Iterator[BoardControl]:
    """A handle on that board."""
    with board.control() as control:
        yield control


def test_each_generation_serves_its_own_chips(make_board: MakeBoard, board: SimulatedBoard) -> None:
    """The other one's init says "not supported", and so do its calls."""
    of_950 = RawDcmi(board.library)
    assert of_950.code("dcmi_init") == NOT_SUPPORT
    assert of_950.code("dcmiv2_init") == 0
    assert code(of_950, "dcmi_get_device_health", 0, 0) == NOT_SUPPORT
    older = RawDcmi(make_board("910b4-8").library)
    assert older.code("dcmi_init") == 0
    assert not hasattr(older.cdll, "dcmiv2_init")


def test_a_refused_init_forgets_the_chips(dcmi: RawDcmi) -> None:
    """As in the vendor's library, where both share the table."""
    assert code(dcmi, HEALTH, 0) == 0
    assert dcmi.code("dcmi_init") == NOT_SUPPORT
    assert code(dcmi, HEALTH, 0) == NOT_SUPPORT


def test_drivers_of_the_first_generation_lack_the_second(make_board: MakeBoard) -> None:
    """Only the boards with a 950 have an Ascend driver that knows it."""
    found = {name for name in profile_names() if load_profile(name).generation == 2}
    assert found == {ON_PCI, ON_UB}
    newer = RawDcmi(make_board(ON_PCI).library)
    assert [name for name in simulated_functions() if not hasattr(newer.cdll, name)] == []


def test_devices_are_named_by_their_logic_id(dcmi: RawDcmi, board: SimulatedBoard) -> None:
    """A number beyond the list is a wrong argument."""
    ids = [device.physical_id for device in board.profile.devices]
    assert listed(dcmi) == list(range(len(ids)))
    physical = "dcmiv2_get_chip_phy_id_by_dev_id"
    assert [dcmi.number(physical, number) for number in listed(dcmi)] == ids
    assert code(dcmi, HEALTH, len(ids)) == code(dcmi, HEALTH, -1) == UNLISTED


@pytest.mark.parametrize(
    ("function", "arguments", "size"),
    [
        ("dcmiv2_get_device_chip_info", (), 132),
        ("dcmiv2_get_device_board_info", (), 16),
        ("dcmiv2_get_device_die_id", (DDIE,), 20),
        ("dcmiv2_get_device_multi_utilization_rate", (), 16),
        ("dcmiv2_get_device_ecc_info", (2,), 28),
        ("dcmiv2_get_device_hbm_info", (), 32),
    ],
)
def test_a_struct_has_the_vendors_size(
    dcmi: RawDcmi, function: str, arguments: tuple[int, ...], size: int
) -> None:
    """It is the struct of the first generation."""
    assert len(dcmi.record(function, 1, *arguments)) == size


def test_a_950_is_on_pci_or_on_the_unified_bus(make_board: MakeBoard) -> None:
    """On the unified bus no call tells a PCI address; sysfs shows PCI alone."""
    answers = {}
    for name in (ON_PCI, ON_UB):
        board = make_board(name)
        dcmi = load(board.library)
        pci = code(dcmi, "dcmiv2_get_device_pcie_info", 0)
        shown = len(list((board.sysfs_root / "bus/pci/devices").iterdir()))
        answers[name] = (pci, shown)
    assert answers == {ON_PCI: (0, 4), ON_UB: (NOT_SUPPORT, 0)}


def test_health_codes_and_texts_follow(dcmi: RawDcmi, control: BoardControl) -> None:
    """The same controls as for the first generation; a gone chip is "unknown"."""
    control.add_fault(1, 0x80E01801, severity=Severity.MAJOR)
    assert dcmi.number(HEALTH, 1) == 2
    codes, count = (ctypes.c_uint * 128)(), ctypes.c_int()
    function = "dcmiv2_get_device_error_code_list"
    assert dcmi.code(function, 1, ctypes.byref(count), codes, 128) == 0
    assert codes[: count.value] == [0x80E01801]
    control.set_gone(1)
    assert dcmi.number(HEALTH, 1) & 0xFFFF_FFFF == UNKNOWN_HEALTH
    text = ctypes.create_string_buffer(256)
    assert dcmi.code("dcmiv2_get_device_error_info", 0, 0x80E01801, text, 256) == 0
    assert b"80E01801" in text.value


def test_events_come_with_the_dev_id(dcmi: RawDcmi, control: BoardControl) -> None:
    """One id, -1, stands for all chips."""
    events = subscribe_by_dev_id(dcmi, Filter())
    control.add_fault(2, 0x80E01801, severity=Severity.MINOR)
    assert described(events.get(timeout=LIMIT)) == (0x80E01801, 2, 1, 1)


def test_rules_name_the_function_that_was_called(dcmi: RawDcmi, control: BoardControl) -> None:
    """Each generation has its own names."""
    control.set_return_code(HEALTH, -8005, 1)
    assert [code(dcmi, HEALTH, number) for number in (0, 1)] == [0, -8005]
    control.release(HEALTH, 1)
    control.set_booting(1, answers=[HEALTH])
    assert code(dcmi, HEALTH, 1) == 0
    assert code(dcmi, "dcmiv2_get_device_temperature", 1) == -8012


def test_a_chip_that_does_not_answer_is_left_out(dcmi: RawDcmi, control: BoardControl) -> None:
    """The others keep their numbers: the kernel counts it."""
    all_ids = listed(dcmi)
    control.set_silent(1)
    assert dcmi.code("dcmiv2_init") == 0
    assert listed(dcmi) == [number for number in all_ids if number != 1]
    assert code(dcmi, HEALTH, 1) == UNLISTED


def run_npu_smi(board: SimulatedBoard, *arguments: str) -> list[str]:
    """What the board's npu-smi prints, with an empty environment."""
    command = [str(board.npu_smi), *arguments]
    run = subprocess.run(command, env={}, capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def test_npu_smi_names_a_950_by_its_dev_id(make_board: MakeBoard) -> None:
    """Its table has no chip id (npu-smi reference); without a PCI address there is no bus id."""
    board = make_board(ON_PCI)
    with board.control() as control:
        control.add_fault(1, 0x80E01801, Severity.MAJOR)
        control.set_processes(1, [(1, 3 << 30)])
    table = run_npu_smi(board, "info")
    assert {len(line) for line in table} == {99}
    lines = [" ".join(line.split()) for line in table]
    at = lines.index("| 1 | Ascend950PR | Alarm | 204.4 56 0 / 0 |")
    assert lines[at + 1] == "| | | 0000:12:00.0 | 0 0 / 0 4439 / 86016 |"
    assert next(line for line in lines if line.endswith("3072 |")).startswith("| 1 | 1 |")
    assert sum("No running processes found in NPU" in line for line in lines) == 3
    assert "| NA " in "".join(run_npu_smi(make_board(ON_UB), "info"))
