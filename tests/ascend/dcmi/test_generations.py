"""Which generation of calls serves the chips, and that both give the same values."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from dev.rig.waiting import HANG_SECONDS
from tests.ascend.dcmi.test_library import compile_library, driver_folder
from trio_npu_dra.ascend.dcmi.calls import DcmiCall
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotReady, NotSupported
from trio_npu_dra.ascend.dcmi.types import (
    Assertion,
    ChipRef,
    DieKind,
    FaultEvent,
    Link,
    Place,
    SuperPodPlace,
)
from trio_npu_dra.lab.simulator import BoardControl, Severity, SimulatedBoard, load_profile

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


def told(calls: list[DcmiCall]) -> list[tuple[str, int]]:
    """The calls and their return codes."""
    return [(call.function, call.code) for call in calls]


def test_the_first_generation_is_asked_first(dcmi: Dcmi, calls: list[DcmiCall]) -> None:
    """A library that it serves is asked nothing else."""
    assert told(calls) == [("dcmi_init", 0)]
    assert dcmi.card_list() == tuple(range(8))


@pytest.mark.parametrize("profile", [ON_UB])
def test_a_950_is_served_by_the_second(dcmi: Dcmi, calls: list[DcmiCall]) -> None:
    """The first init says so; later it is left out, because a refused one forgets the chips."""
    assert told(calls) == [("dcmi_init", -8255), ("dcmiv2_init", 0)]
    dcmi.init()
    assert told(calls)[2:] == [("dcmiv2_init", 0)]
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


@pytest.mark.parametrize("profile", [ON_PCI])
def test_each_device_of_the_second_generation_is_a_card_of_its_own(dcmi: Dcmi) -> None:
    """It knows no cards: one number names a chip."""
    assert dcmi.card_list() == (0, 1, 2, 3)
    assert dcmi.units(2) == (ChipRef(2),)
    assert dcmi.place(ChipRef(2)) == Place(card_id=2, device_id=0)
    assert (dcmi.logic_id(ChipRef(2)), dcmi.physical_id(2)) == (2, 2)
    assert dcmi.is_npu(ChipRef(2))


@pytest.mark.parametrize("profile", [ON_UB])
def test_a_gap_in_the_numbers_is_a_chip_that_does_not_answer(
    dcmi: Dcmi, control: BoardControl
) -> None:
    """As the first generation tells of a card."""
    control.set_silent(2)
    dcmi.init()
    assert dcmi.card_list() == (0, 1, -1, 3, 4, 5, 6, 7)


@pytest.mark.parametrize("profile", [ON_PCI])
def test_the_facts_of_a_950(dcmi: Dcmi) -> None:
    """The names, board, memory, address and die of the chip, by calls of its own."""
    info = dcmi.chip_info(SECOND)
    assert (info.chip_name, info.npu_name, info.ai_cores) == ("Ascend950PR", "950PR", 32)
    assert dcmi.board_id(SECOND) == 0x18
    assert dcmi.hbm(SECOND).size_mib == 84 * 1024
    assert dcmi.pci_bus_id(SECOND) == "0000:12:00.0"
    assert dcmi.die_id(SECOND, DieKind.DDIE)[4] == 0x10940001
    assert dcmi.driver_version() == "26.0.0"
    assert (dcmi.link(FIRST, SECOND), dcmi.link(FIRST, ChipRef(2))) == (Link.UB, Link.SYS)
    assert dcmi.link(FIRST, FIRST) is Link.SELF
    assert not dcmi.device_share(FIRST)
    assert dcmi.vnpus(FIRST) == ()


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


@pytest.mark.parametrize("profile", [ON_UB])
def test_the_place_of_a_950_in_its_super_pod(dcmi: Dcmi) -> None:
    """On the unified bus, where it has no PCI address."""
    assert dcmi.super_pod(SECOND) == SuperPodPlace(sdid=21233666, super_pod_id=11, server_index=5)
    with pytest.raises(NotSupported):
        dcmi.pci_bus_id(SECOND)
    assert dcmi.network_health(SECOND) == 0


@pytest.mark.parametrize("profile", [ON_UB])
def test_health_and_measurements_of_a_950(dcmi: Dcmi, control: BoardControl) -> None:
    """In the units of the first generation."""
    control.add_fault(1, 0x80E01801, Severity.MAJOR)
    control.set_temperature(1, 51)
    control.set_power(1, 312.5)
    control.set_utilization(1, 2, 40)
    control.set_processes(1, [(4711, 3 * GIB)])
    assert (dcmi.health(SECOND), dcmi.error_codes(SECOND)) == (2, (0x80E01801,))
    assert "80E01801" in dcmi.error_text(SECOND, 0x80E01801)
    assert dcmi.boot_status(SECOND) == 16
    measured = (dcmi.temperature(SECOND), dcmi.power(SECOND), dcmi.ai_core_utilization(SECOND))
    assert measured == (51, 3125, 40)
    assert [(one.pid, one.memory_bytes) for one in dcmi.processes(SECOND)] == [(4711, 3 * GIB)]


@pytest.mark.parametrize("profile", [ON_UB])
def test_what_the_second_generation_lacks_is_not_supported(dcmi: Dcmi) -> None:
    """The library is not asked: no version of it has such a call."""
    for ask in (dcmi.product_type, dcmi.card_power, dcmi.ddr):
        with pytest.raises(NotSupported, match="of this generation"):
            ask(FIRST)
    with pytest.raises(NotSupported):
        dcmi.multi_die_policy()


@pytest.mark.parametrize("profile", [ON_UB])
async def test_events_of_a_950_name_its_logic_id(dcmi: Dcmi, control: BoardControl) -> None:
    """One subscription is for all chips."""
    send, receive = trio.open_memory_channel[FaultEvent](1)
    token = trio.lowlevel.current_trio_token()
    dcmi.subscribe(lambda event: token.run_sync_soon(send.send_nowait, event))
    control.add_fault(3, 0x80E01801, Severity.MINOR)
    with trio.fail_after(HANG_SECONDS):
        event = await receive.receive()
    assert (event.logic_id, event.code) == (3, 0x80E01801)
    assert event.assertion is Assertion.OCCURRENCE


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


def test_longer_structs_of_a_newer_driver_do_no_harm(tmp_path: Path) -> None:
    """What it writes beyond ours is dropped."""
    source = """
    #include <string.h>
    int dcmi_init(void) { return -8255; }
    int dcmiv2_init(void) { return 0; }
    int dcmiv2_get_device_hbm_info(int id, void *out) {
        memset((char *)out + 32, 7, 200);
        *(unsigned long long *)out = 1024 + id;
        return 0;
    }
    """
    compile_library(driver_folder(tmp_path) / "libdcmi.so", source)
    dcmi = Dcmi.load(tmp_path)
    dcmi.init()
    assert dcmi.hbm(SECOND).size_mib == 1025


def test_a_unit_of_no_valid_type_is_not_ready(tmp_path: Path) -> None:
    """The library does not know it yet, or has lost it: it is no MCU."""
    source = """
    int dcmi_get_device_type(int card, int device, int *out) { *out = 255; return 0; }
    """
    compile_library(driver_folder(tmp_path) / "libdcmi.so", source)
    with pytest.raises(NotReady, match="no valid type"):
        Dcmi.load(tmp_path).is_npu(ChipRef(0, 0))


def test_a_chip_has_words_for_people() -> None:
    """By the numbers that its generation has."""
    assert (str(ChipRef(3, 0)), str(ChipRef(3))) == ("card 3 device 0", "device 3")
