"""The links that chips report: RoCE addresses and state, HCCS state and bandwidth."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.simulator.conftest import Load, MakeBoard, RawDcmi
    from trio_npu_dra.lab.simulator import BoardControl

ROCE, VNIC = 1, 0
V6 = 1
STATE = (16, 0)
NOT_SET = -8023
NOT_SUPPORT = -8255


def device_ip(
    dcmi: RawDcmi, card: int, *, port: int = ROCE, kind: int = 0
) -> tuple[int, bytes, bytes]:
    """Return code, address and mask of a port: 20 bytes each, the kind of address at 16."""
    ip, mask = (ctypes.create_string_buffer(20) for _ in range(2))
    struct.pack_into("=i", ip, 16, kind)
    code = dcmi.code("dcmi_get_device_ip", card, 0, port, 0, ip, mask)
    return code, ip.raw, mask.raw


def test_the_address_of_a_roce_port(dcmi: RawDcmi) -> None:
    """It is an IPv4 address with its mask; IPv6 and other ports have none."""
    address = bytes([192, 168, 100, 104]) + bytes(16)
    mask = bytes([255, 255, 255, 0]) + bytes(16)
    assert device_ip(dcmi, 3) == (0, address, mask)
    assert device_ip(dcmi, 3, kind=V6)[0] == NOT_SET
    assert device_ip(dcmi, 3, port=VNIC)[0] == NOT_SET
    assert device_ip(dcmi, 3, port=2)[0] == -8001


def test_chips_without_a_roce_port_have_no_address(make_board: MakeBoard, load: Load) -> None:
    """On 310P the call is not supported."""
    assert device_ip(load(make_board("300i-duo-2").library), 4)[0] == NOT_SUPPORT


def test_hccs_tells_its_state(
    dcmi: RawDcmi, control: BoardControl, make_board: MakeBoard, load: Load
) -> None:
    """12 bytes: no lane has a fault, and the links are up, or a chip's are only being set up."""
    control.set_hccs_status(1, 2)
    assert dcmi.device_info(0, 0, *STATE) == (0, struct.pack("=2I4x", 0, 3))
    assert dcmi.device_info(1, 0, *STATE) == (0, struct.pack("=2I4x", 0, 2))
    assert load(make_board("910a-8").library).device_info(0, 0, *STATE) == (NOT_SUPPORT, b"")


def test_hccs_bandwidth_adds_to_the_totals(dcmi: RawDcmi) -> None:
    """280 bytes have 16 idle links each way, added to totals that the caller did not clear."""
    totals = struct.pack("=ixxxx2d", 1000, 3.0, 4.0)
    out = ctypes.create_string_buffer(totals + b"\xee" * 1000, 1024)
    assert dcmi.code("dcmi_get_hccs_link_bandwidth_info", 0, 0, out) == 0
    assert struct.unpack_from("=ixxxx34d", out.raw) == (1000, 3.0, 4.0, *[0.0] * 32)
    assert out.raw[280:1000] == b"\xee" * 720


@pytest.mark.parametrize(("profile", "card"), [("300i-duo-2", 4), ("910a-8", 0)])
def test_hccs_bandwidth_is_for_910b_and_a3(
    make_board: MakeBoard, load: Load, profile: str, card: int
) -> None:
    """Other chips do not support it."""
    out = ctypes.create_string_buffer(280)
    dcmi = load(make_board(profile).library)
    assert dcmi.code("dcmi_get_hccs_link_bandwidth_info", card, 0, out) == NOT_SUPPORT
