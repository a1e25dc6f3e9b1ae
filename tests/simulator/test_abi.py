"""The simulated library through raw calls: the bytes that each writes, and their places."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import pytest

from trio_npu_dra.lab.simulator import SimulatedBoard, simulated_functions

if TYPE_CHECKING:
    from tests.simulator.conftest import RawDcmi

NOT_SUPPORT = -8255
UNKNOWN_HEALTH = 0xFFFFFFFF


def test_every_function_of_the_source_is_exported(dcmi: RawDcmi) -> None:
    """Those of the first generation that control accepts are exactly the library's symbols."""
    functions = [name for name in simulated_functions() if name.startswith("dcmi_")]
    assert len(functions) > 40
    for function in functions:
        assert dcmi.cdll[function]
    assert not hasattr(dcmi.cdll, "board_lock")


@pytest.mark.parametrize(
    ("function", "arguments", "size"),
    [
        ("dcmi_get_device_chip_info", (), 100),
        ("dcmi_get_device_chip_info_v2", (), 132),
        ("dcmi_get_device_pcie_info_v2", (), 64),
        ("dcmi_get_device_board_info", (), 16),
        ("dcmi_get_device_die_v2", (1,), 20),
        ("dcmi_get_device_elabel_info", (), 1280),
        ("dcmi_get_device_multi_utilization_rate", (), 16),
        ("dcmi_get_device_ecc_info", (2,), 28),
        ("dcmi_get_device_hbm_info", (), 32),
    ],
)
def test_a_struct_has_the_vendors_size(
    dcmi: RawDcmi, function: str, arguments: tuple[int, ...], size: int
) -> None:
    """A call writes exactly the vendor's number of bytes, because a caller's buffer has no more."""
    if function == "dcmi_get_device_elabel_info":
        size = 1024 + len("SIM00000003") + 1  # the rest of a text buffer stays unchanged
    assert len(dcmi.record(function, 3, 0, *arguments)) == size


@pytest.mark.parametrize(("query", "length", "computing"), [(1, 360, 208), (2, 224, 72)])
def test_an_unsplit_chip_has_all_its_cores(
    dcmi: RawDcmi, query: int, length: int, computing: int
) -> None:
    """The vNPU queries give total and free cores, memory, AI CPUs and media engines."""
    code, resources = dcmi.device_info(0, 0, 52, query)
    assert code == 0
    assert struct.unpack_from("=2f", resources, computing) == (20.0, -1.0)
    assert struct.unpack_from("=Q", resources, computing + 24) == (32768,)
    assert struct.unpack_from("=H", resources, computing + 54) == (6,)
    media = struct.unpack_from("=6f", resources, computing + 96)
    assert media == (24, 4, 9, 2, 0, 0)  # jpegd, jpege, vpc, vdec, pngd, venc
    if query == 1:
        assert struct.unpack_from("=I", resources) == (0,)  # no vNPU
        assert resources[4:computing] == b"\xff" * (computing - 4)
    else:
        assert resources[:computing] == b"\xff" * computing
    # The rest of the caller's buffer is cleared too.
    assert resources[computing + 120 :] == b"\xff" * (len(resources) - computing - 120)
    assert len(resources) > length


def test_a_short_buffer_for_resources_is_refused(dcmi: RawDcmi) -> None:
    """A byte less than the struct is a wrong argument, and nothing is written."""
    for query, length in ((1, 360), (2, 224)):
        out, size = ctypes.create_string_buffer(length), ctypes.c_uint(length - 1)
        arguments = (0, 0, 52, query, out, ctypes.byref(size))
        assert dcmi.code("dcmi_get_device_info", *arguments) == -8001
        assert out.raw == bytes(length)


def test_before_init(board: SimulatedBoard) -> None:
    """Each call returns the real library's code from before dcmi_init."""
    raw = ctypes.CDLL(str(board.library))
    out, codes = ctypes.create_string_buffer(256), (ctypes.c_uint * 128)()
    assert raw.dcmi_get_card_list(out, codes, 64) == -8005
    assert raw.dcmi_get_device_health(0, 0, out) == NOT_SUPPORT
    assert raw.dcmi_get_device_errorcode_v2(0, 0, out, codes, 128) == -8005
    assert raw.dcmi_get_device_logic_id(out, 0, 0) == -8012
    assert raw.dcmi_get_device_chip_info_v2(0, 0, out) == NOT_SUPPORT
    assert raw.dcmi_mcu_get_power_info(0, out) == -8001
    for function in ("multi_utilization_rate", "power_info", "share_enable"):
        assert raw[f"dcmi_get_device_{function}"](0, 0, out) == NOT_SUPPORT
    assert raw.dcmi_get_device_ecc_info(0, 0, 2, out) == NOT_SUPPORT
    kind = ctypes.c_int()
    assert raw.dcmi_get_device_type(0, 0, ctypes.byref(kind)) == 0
    assert kind.value == 0xFF
