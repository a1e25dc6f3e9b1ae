"""A board that changes while its library is in use."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.simulator.subscribing import (
    CALLBACK,
    LIMIT,
    Filter,
    described,
    subscribe,
)
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.lab.simulator import (
    BoardControl,
    Severity,
    SimulatedBoard,
)

if TYPE_CHECKING:
    from tests.simulator.conftest import MakeBoard, RawDcmi

FAULT = 0x80E01801
OTHER_FAULT = 0x81078603


def test_another_process_changes_the_board(
    board: SimulatedBoard, dcmi: RawDcmi, control: BoardControl
) -> None:
    """The library shows at once what a handle in another process writes."""
    program = (
        "import sys; from pathlib import Path\n"
        "from trio_npu_dra.lab.simulator import BoardControl\n"
        "BoardControl(Path(sys.argv[1])).set_temperature(3, 91)"
    )
    subprocess.run([sys.executable, "-c", program, str(board.state_file)], check=True)
    assert dcmi.number("dcmi_get_device_temperature", 3, 0) == 91
    assert dcmi.number("dcmi_get_device_temperature", 4, 0) == 38
    assert control.read(3, "temperature") == 91


def test_processes_keep_the_share_flag_from_changing(dcmi: RawDcmi, control: BoardControl) -> None:
    """Processes are listed with their memory, and a busy chip refuses another sharing mode."""
    control.set_processes(1, [(4711, 5 << 30), (4712, 1 << 20)])
    count, processes = ctypes.c_int(), ctypes.create_string_buffer(64 * 16)
    function = "dcmi_get_device_resource_info"
    assert dcmi.code(function, 1, 0, processes, ctypes.byref(count)) == 0
    assert count.value == 2
    assert struct.unpack_from("@iLiL", processes.raw) == (4711, 5 << 30, 4712, 1 << 20)
    assert dcmi.code("dcmi_set_device_share_enable", 1, 0, 1) == -8013
    control.set_processes(1, [])
    assert dcmi.code("dcmi_set_device_share_enable", 1, 0, 1) == 0
    assert dcmi.number("dcmi_get_device_share_enable", 1, 0) == 1
    assert dcmi.number("dcmi_get_device_share_enable", 2, 0) == 0
    assert control.read(1, "share_enable") == 1
    control.set_share(1, enabled=False)
    assert dcmi.number("dcmi_get_device_share_enable", 1, 0) == 0


def test_health_is_the_worst_of_a_chips_faults(dcmi: RawDcmi, control: BoardControl) -> None:
    """Faults are listed by code and raise the health as long as they last."""
    control.add_fault(0, OTHER_FAULT, Severity.MINOR)
    control.add_fault(0, FAULT, Severity.CRITICAL)
    assert dcmi.number("dcmi_get_device_health", 0, 0) == 3
    assert dcmi.faults(0) == [OTHER_FAULT, FAULT]
    control.clear_fault(0, FAULT)
    assert dcmi.number("dcmi_get_device_health", 0, 0) == 1
    assert dcmi.faults(0) == [OTHER_FAULT]
    control.set_health(0, Severity.MAJOR)
    assert dcmi.number("dcmi_get_device_health", 0, 0) == 2
    control.restore(0)
    assert dcmi.number("dcmi_get_device_health", 0, 0) == 0


def test_a_gone_chip_succeeds_with_unknown_health(dcmi: RawDcmi, control: BoardControl) -> None:
    """Its health call gives 0 with 0xFFFFFFFF, all others fail; the next init does not list it."""
    control.set_gone(2)
    out = ctypes.c_uint()
    assert dcmi.code("dcmi_get_device_health", 2, 0, ctypes.byref(out)) == 0
    assert out.value == 0xFFFFFFFF
    assert dcmi.code("dcmi_get_device_temperature", 2, 0, ctypes.byref(out)) == -8008
    assert dcmi.code("dcmi_get_device_errorcode_v2", 2, 0, ctypes.byref(out), None, 0) == -8005
    assert dcmi.cards() == list(range(8))
    assert dcmi.code("dcmi_init") == 0
    assert dcmi.cards() == [0, 1, 3, 4, 5, 6, 7]


def test_subscribers_hear_of_a_fault_and_its_end(dcmi: RawDcmi, control: BoardControl) -> None:
    """Occurrence and recovery arrive on a thread of the library, with the same time."""
    events = subscribe(dcmi, Filter())
    control.add_fault(5, FAULT, Severity.MAJOR)
    control.clear_fault(5, FAULT)
    control.emit_event(6, OTHER_FAULT, Severity.WARNING)
    first, second, third = (events.get(timeout=LIMIT) for _ in range(3))
    assert described(first) == (FAULT, 5, 2, 1)
    assert described(second) == (FAULT, 5, 2, 0)
    assert described(third) == (OTHER_FAULT, 6, 0, 2)
    raised = [struct.unpack_from("=Q", event, 8 + 24)[0] for event in (first, second)]
    assert raised[0] == raised[1] > 1_600_000_000_000
    assert first[8 + 32 :].startswith(b"deviceid=5, simulated fault 0x80E01801\0")


def test_a_burst_arrives_whole_and_in_order(dcmi: RawDcmi, control: BoardControl) -> None:
    """None of two hundred events in a row is lost."""
    events = subscribe(dcmi, Filter())
    for code in range(200):
        control.emit_event(code % 8, code, Severity.MINOR)
    assert [described(events.get(timeout=LIMIT))[0] for _ in range(200)] == list(range(200))


def test_a_filter_lets_through_what_it_names(dcmi: RawDcmi, control: BoardControl) -> None:
    """Severity and above, by value across the ABI."""
    events = subscribe(dcmi, Filter(filter_flag=2, severity=2), device=3)
    control.emit_event(3, 1, Severity.MINOR)
    control.emit_event(4, 2, Severity.CRITICAL)  # another device
    control.emit_event(3, 3, Severity.MAJOR)
    assert described(events.get(timeout=LIMIT))[:2] == (3, 3)


def test_a_process_subscribes_once(dcmi: RawDcmi) -> None:
    """The second subscription is refused, as is one without a handler."""
    assert dcmi.code("dcmi_subscribe_fault_event", -1, -1, Filter(), None) == -8001
    subscribe(dcmi, Filter())
    handler = CALLBACK(lambda _: None)
    assert dcmi.code("dcmi_subscribe_fault_event", -1, -1, Filter(), handler) == -8020


def test_a_function_can_be_made_to_fail(dcmi: RawDcmi, control: BoardControl) -> None:
    """It fails on one device or on all, until released."""
    name, out = "dcmi_get_device_temperature", ctypes.c_int()
    control.set_return_code(name, -8020, 1)
    assert dcmi.code(name, 1, 0, ctypes.byref(out)) == -8020
    assert dcmi.code(name, 2, 0, ctypes.byref(out)) == 0
    control.release(name, 1)
    assert dcmi.code(name, 1, 0, ctypes.byref(out)) == 0
    control.set_return_code("dcmi_init", -8005)
    assert dcmi.code("dcmi_init") == -8005
    control.set_delay(name, 1)
    assert dcmi.code(name, 1, 0, ctypes.byref(out)) == 0


def test_a_hung_call_holds_up_nobody_else(dcmi: RawDcmi, control: BoardControl) -> None:
    """Calls about the hung chip return on release; others go on meanwhile."""
    control.hang(device=3)
    health: list[int] = []
    waiting = threading.Thread(
        target=lambda: health.append(dcmi.number("dcmi_get_device_health", 3, 0))
    )
    waiting.start()
    assert dcmi.number("dcmi_get_device_health", 4, 0) == 0
    assert dcmi.code("dcmi_init") == 0
    waiting.join(0.02)
    assert waiting.is_alive()
    control.release(device=3)
    waiting.join(LIMIT)
    assert health == [0]


def test_controls_refuse_what_does_not_exist(board: SimulatedBoard, control: BoardControl) -> None:
    """Unknown devices, functions, faults and files are errors that name them."""
    with pytest.raises(ConfigError, match="no device 8 on this board; it has 0, 1"):
        control.set_gone(8)
    with pytest.raises(ConfigError, match="no function 'dcmi_get_weather'"):
        control.hang("dcmi_get_weather")
    with pytest.raises(ConfigError, match="device 0 has no fault 80E01801"):
        control.clear_fault(0, FAULT)
    with pytest.raises(ConfigError, match="not a state file"):
        BoardControl(board.library)
    with pytest.raises(ConfigError, match="No such file"):
        BoardControl(board.root / "nothing")


def test_two_boards_in_one_process_stay_apart(make_board: MakeBoard) -> None:
    """Loaded with global symbols, as the driver does, each library finds its own board."""
    boards = [make_board("910b4-8"), make_board("a3-16")]
    libraries = [ctypes.CDLL(str(board.library), mode=ctypes.RTLD_GLOBAL) for board in boards]
    counts = []
    for library in libraries:
        count, cards = ctypes.c_int(), (ctypes.c_int * 64)()
        assert library.dcmi_init() == 0
        assert library.dcmi_get_card_list(ctypes.byref(count), cards, 64) == 0
        number = ctypes.c_int()
        assert library.dcmi_get_device_num_in_card(0, ctypes.byref(number)) == 0
        counts.append((count.value, number.value))
    assert counts == [(8, 1), (8, 2)]
