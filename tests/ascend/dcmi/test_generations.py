"""Which generation of calls serves the chips, and that both give the same values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ascend.dcmi.test_library import compile_library, driver_folder
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotReady, NotSupported
from trio_npu_dra.ascend.dcmi.types import (
    ChipRef,
    DcmiCall,
)
from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard, load_profile

ON_PCI, ON_UB = load_profile("950-card-4"), load_profile("950-pod-8")
FIRST, SECOND = ChipRef(0), ChipRef(1)
GIB = 1024 * 1024 * 1024


@pytest.fixture
def calls() -> list[DcmiCall]:
    """The calls that the library got."""
    return []


@pytest.fixture
def dcmi(simulated: SimulatedBoard, calls: list[DcmiCall]) -> Dcmi:
    """The board's library, initialised."""
    dcmi = Dcmi.load(simulated.root, calls.append)
    dcmi.init()
    return dcmi


def outcomes(calls: list[DcmiCall]) -> list[tuple[str, int]]:
    """The calls and their return codes."""
    return [(call.function, call.code) for call in calls]


def test_the_first_generation_is_asked_first(dcmi: Dcmi, calls: list[DcmiCall]) -> None:
    """A library that it serves is asked nothing else."""
    assert outcomes(calls) == [("dcmi_init", 0)]
    assert dcmi.card_list() == tuple(range(8))


@pytest.mark.parametrize("profile", [ON_UB])
def test_a_950_is_served_by_the_second(dcmi: Dcmi, calls: list[DcmiCall]) -> None:
    """The first init says so; later it is left out, because a refused one forgets the chips."""
    assert outcomes(calls) == [("dcmi_init", -8255), ("dcmiv2_init", 0)]
    dcmi.init()
    assert outcomes(calls)[2:] == [("dcmiv2_init", 0)]
    assert dcmi.health(FIRST) == 0


@pytest.mark.parametrize("profile", [ON_UB])
def test_an_error_of_the_first_says_nothing_of_the_second(
    simulated: SimulatedBoard, control: BoardControl, calls: list[DcmiCall]
) -> None:
    """Chips that boot are waited for; the next init finds out."""
    dcmi = Dcmi.load(simulated.root, calls.append)
    control.set_return_code("dcmi_init", -8012)
    with pytest.raises(NotReady, match="dcmi_init"):
        dcmi.init()
    control.release("dcmi_init")
    control.set_return_code("dcmiv2_init", -8005)
    with pytest.raises(DcmiError, match="dcmiv2_init"):
        dcmi.init()
    control.release("dcmiv2_init")
    dcmi.init()
    assert len(dcmi.card_list()) == 8


def test_a_driver_that_serves_neither_says_what_it_lacks(tmp_path: Path) -> None:
    """A 950 under an Ascend driver that is too old for it."""
    path = driver_folder(tmp_path) / "libdcmi.so"
    compile_library(path, "int dcmi_init(void) { return -8255; }")
    with pytest.raises(NotSupported, match=r"dcmiv2_init .*a newer Ascend driver may"):
        Dcmi.load(tmp_path).init()


def test_a_driver_without_the_first_generation_is_served_by_the_second(tmp_path: Path) -> None:
    """As a future one may be."""
    path = driver_folder(tmp_path) / "libdcmi.so"
    compile_library(path, "int dcmiv2_init(void) { return 0; }")
    Dcmi.load(tmp_path).init()


@pytest.mark.parametrize("profile", [ON_UB])
def test_a_gap_in_the_numbers_is_a_chip_that_does_not_answer(
    dcmi: Dcmi, control: BoardControl
) -> None:
    """As a card of the first generation."""
    control.set_silent(2)
    dcmi.init()
    assert dcmi.card_list() == (0, 1, -1, 3, 4, 5, 6, 7)


@pytest.mark.parametrize("profile", [ON_PCI, ON_UB])
def test_the_nearest_cpus_of_a_950(dcmi: Dcmi, control: BoardControl) -> None:
    """None, where the library's room for the list is too short or its file is missing."""
    last = len(dcmi.card_list()) - 1
    assert dcmi.nearest_cpus(FIRST) != dcmi.nearest_cpus(ChipRef(last))
    for code in (-8004, -8001):
        control.set_return_code("dcmiv2_get_affinity_cpu_info_by_dev_id", code)
        assert dcmi.nearest_cpus(FIRST) == ""
    control.set_return_code("dcmiv2_get_affinity_cpu_info_by_dev_id", -8005)
    with pytest.raises(DcmiError) as caught:
        dcmi.nearest_cpus(FIRST)
    assert type(caught.value) is DcmiError


def test_impossible_numbers_of_devices_are_refused(tmp_path: Path) -> None:
    """A gap of two billion is no list of silent chips."""
    source = """
    int dcmi_init(void) { return -8255; }
    int dcmiv2_init(void) { return 0; }
    int dcmiv2_get_device_list(int *ids, int *count, int length) {
        ids[0] = 2000000000;
        *count = length > 1;
        return 0;
    }
    """
    compile_library(driver_folder(tmp_path) / "libdcmi.so", source)
    dcmi = Dcmi.load(tmp_path)
    dcmi.init()
    with pytest.raises(DcmiError, match="2000000000"):
        dcmi.card_list()


def test_a_unit_of_no_valid_type_is_not_ready(tmp_path: Path) -> None:
    """The library does not know it yet, or has lost it: it is no MCU."""
    source = """
    int dcmi_get_device_type(int card, int device, int *out) { *out = 255; return 0; }
    """
    compile_library(driver_folder(tmp_path) / "libdcmi.so", source)
    with pytest.raises(NotReady, match="no valid type"):
        Dcmi.load(tmp_path).is_npu(ChipRef(0, 0))
