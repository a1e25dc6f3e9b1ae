"""Chips that go, boot or do not answer: the library's answers about them and about others."""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from tests.simulator.subscribing import LIMIT
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.lab.simulator import BoardControl

if TYPE_CHECKING:
    from tests.simulator.conftest import Load, MakeBoard, RawDcmi

NETWORK_HEALTH = "dcmi_get_device_network_health"
CHIP_INFO = "dcmi_get_device_chip_info_v2"
HEALTH = "dcmi_get_device_health"
TEMPERATURE = "dcmi_get_device_temperature"
NOT_READY = -8012


def logic_id(dcmi: RawDcmi, card: int) -> int:
    """The logic id of a card's first chip."""
    number = ctypes.c_int(-1)
    assert dcmi.code("dcmi_get_device_logic_id", ctypes.byref(number), card, 0) == 0
    return number.value


# --- gone ----------------------------------------------------------------------------------------


def test_logic_ids_close_up_over_a_chip_that_the_kernel_forgot(
    dcmi: RawDcmi, control: BoardControl
) -> None:
    """After init again the chip has no numbers, and later ones move down."""
    control.set_gone(2)
    assert logic_id(dcmi, 3) == 3
    assert dcmi.code("dcmi_init") == 0
    assert dcmi.cards() == [0, 1, 3, 4, 5, 6, 7]
    assert logic_id(dcmi, 3) == 2
    out = ctypes.c_int()
    assert dcmi.code("dcmi_get_device_logic_id", ctypes.byref(out), 2, 0) == -8001


def test_a_gone_chip_may_keep_its_number(dcmi: RawDcmi, control: BoardControl) -> None:
    """The kernel still counts it: card -1, other logic ids stay, and its own leads to card -1."""
    control.set_gone(2, keeps_number=True)
    assert dcmi.code("dcmi_init") == 0
    assert dcmi.cards() == [-1, 0, 1, 3, 4, 5, 6, 7]
    assert logic_id(dcmi, 3) == 3
    assert dcmi.number("dcmi_get_device_phyid_from_logicid", 2) == 2
    out = ctypes.c_int()
    assert dcmi.code("dcmi_get_device_logic_id", ctypes.byref(out), 2, 0) == -8001
    assert dcmi.code(HEALTH, 2, 0, ctypes.byref(out)) == -8001
    control.restore(2)
    assert dcmi.code("dcmi_init") == 0
    assert dcmi.cards() == list(range(8))


@pytest.mark.parametrize("end", ["release", "restore"])
def test_calls_on_a_gone_card_can_block(dcmi: RawDcmi, control: BoardControl, end: str) -> None:
    """The named call does not return before release or restore; other calls do."""
    control.set_gone(2, blocks=[NETWORK_HEALTH])
    codes: list[int] = []
    out = ctypes.c_int()
    blocked = threading.Thread(
        target=lambda: codes.append(dcmi.code(NETWORK_HEALTH, 2, 0, ctypes.byref(out))),
        daemon=True,
    )
    blocked.start()
    assert dcmi.number(HEALTH, 2, 0) == -1
    assert dcmi.number(NETWORK_HEALTH, 3, 0) == 0
    blocked.join(0.02)
    assert blocked.is_alive()
    if end == "release":
        control.release(NETWORK_HEALTH, 2)
    else:
        control.restore(2)
    blocked.join(LIMIT)
    assert codes == [-8008 if end == "release" else 0]


# --- booting -------------------------------------------------------------------------------------


def test_a_booting_chip_answers_some_calls(dcmi: RawDcmi, control: BoardControl) -> None:
    """The named calls succeed, also health with its value; the others are not ready."""
    control.set_booting(2, answers=[CHIP_INFO, HEALTH])
    out = ctypes.c_int()
    assert struct.unpack_from("=32x32s", dcmi.record(CHIP_INFO, 2, 0))[0].startswith(b"910B4")
    assert dcmi.number(HEALTH, 2, 0) == 0
    assert dcmi.code(TEMPERATURE, 2, 0, ctypes.byref(out)) == NOT_READY
    control.set_booting(3)
    assert dcmi.code(HEALTH, 3, 0, ctypes.byref(out)) == NOT_READY


def test_what_a_booting_chip_answers_ends_with_the_boot(
    dcmi: RawDcmi, control: BoardControl
) -> None:
    """Another presence ends the exceptions; a test's rules for calls stay."""
    out = ctypes.c_int()
    control.set_return_code(HEALTH, -8020, 2)
    control.set_booting(2, answers=[TEMPERATURE])
    assert dcmi.number(TEMPERATURE, 2, 0) == 38
    control.set_silent(2)
    assert dcmi.code(TEMPERATURE, 2, 0, ctypes.byref(out)) == NOT_READY
    assert dcmi.code(HEALTH, 2, 0, ctypes.byref(out)) == -8020


def test_a_presence_with_an_unknown_function_changes_nothing(control: BoardControl) -> None:
    """The error names the function, and the chip stays as it was."""
    with pytest.raises(ConfigError, match="no function 'dcmi_get_weather'"):
        control.set_booting(2, answers=["dcmi_get_weather"])
    with pytest.raises(ConfigError, match="no function 'dcmi_get_weather'"):
        control.set_gone(2, blocks=["dcmi_get_weather"])
    assert control.read(2, "presence") == 0


# --- cards of two dies ---------------------------------------------------------------------------


@pytest.mark.parametrize("die", [4, 5])
def test_one_silent_die_takes_its_card_out_in_union_mode(
    make_board: MakeBoard, load: Load, die: int
) -> None:
    """Either die makes the card -1, and neither is found; an independent sister stays."""
    board = make_board("a3-16")
    dcmi = load(board.library)
    out = ctypes.c_int()
    with board.control() as control:
        control.set_silent(die)
        assert dcmi.code("dcmi_init") == 0
        assert dcmi.cards() == [-1, 0, 1, 3, 4, 5, 6, 7]
        assert dcmi.code("dcmi_get_device_num_in_card", 2, ctypes.byref(out)) == -8001
        for device in (0, 1):
            assert dcmi.code(TEMPERATURE, 2, device, ctypes.byref(out)) == -8001
        control.set_multi_die_policy(independent=True)
        assert dcmi.code("dcmi_init") == 0
        assert dcmi.cards() == list(range(8))
        sister = 1 - die % 2
        assert dcmi.number(TEMPERATURE, 2, sister) == 36
        assert dcmi.code(TEMPERATURE, 2, die % 2, ctypes.byref(out)) == NOT_READY
        control.set_silent(9 - die)
        assert dcmi.code("dcmi_init") == 0
        assert dcmi.cards()[:2] == [-1, 0]
