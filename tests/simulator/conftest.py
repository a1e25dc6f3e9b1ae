"""A compiled simulator, boards made with it, and raw calls into their library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard, create_board, load_profile

BUFFER = 4096
CANARY = b"\xee"

MakeBoard = Callable[[str], SimulatedBoard]


class RawDcmi:
    """Calls by name with plain numbers and buffers: no struct definitions of ours in between."""

    def __init__(self, library: Path) -> None:
        self.cdll = ctypes.CDLL(str(library))

    def code(self, function: str, *arguments: Any) -> int:
        """The return code of the function."""
        return int(self.cdll[function](*arguments))

    def number(self, function: str, *arguments: int) -> int:
        """The 32-bit number that a call gives through its last argument."""
        out = ctypes.c_int(0x5A5A5A5A)
        assert self.code(function, *arguments, ctypes.byref(out)) == 0, function
        return out.value

    def record(self, function: str, *arguments: int) -> bytes:
        """The bytes that a call writes through its last argument; bytes beyond may not change."""
        out = ctypes.create_string_buffer(CANARY * BUFFER, BUFFER)
        assert self.code(function, *arguments, out) == 0, function
        return out.raw.rstrip(CANARY)

    def text(self, function: str, *arguments: int) -> str:
        """The text that a call writes into a buffer with a length."""
        out = ctypes.create_string_buffer(256)
        assert self.code(function, *arguments, out, 256) == 0, function
        return out.value.decode()

    def device_info(self, card: int, device: int, main: int, sub: int) -> tuple[int, bytes]:
        """Return code and struct of the call that has many structs."""
        out = ctypes.create_string_buffer(BUFFER)
        size = ctypes.c_uint(BUFFER)
        code = self.code("dcmi_get_device_info", card, device, main, sub, out, ctypes.byref(size))
        return code, out.raw[: size.value] if code == 0 else b""

    def cards(self) -> list[int]:
        """The card list."""
        count, cards = ctypes.c_int(), (ctypes.c_int * 64)()
        assert self.code("dcmi_get_card_list", ctypes.byref(count), cards, 64) == 0
        return list(cards[: count.value])

    def faults(self, card: int, device: int = 0) -> list[int]:
        """The error codes of a device."""
        count, codes = ctypes.c_int(), (ctypes.c_uint * 128)()
        function = "dcmi_get_device_errorcode_v2"
        assert self.code(function, card, device, ctypes.byref(count), codes, 128) == 0
        return list(codes[: count.value])

    def processes(self, card: int, device: int = 0) -> list[int]:
        """The pids of the processes on a device."""
        count, found = ctypes.c_int(), ctypes.create_string_buffer(64 * 16)
        function = "dcmi_get_device_resource_info"
        assert self.code(function, card, device, found, ctypes.byref(count)) == 0
        pids = (found.raw[16 * one : 16 * one + 4] for one in range(count.value))
        return [int.from_bytes(pid, "little") for pid in pids]


Load = Callable[[Path], RawDcmi]


@pytest.fixture
def make_board(simulator: Path, tmp_path: Path) -> MakeBoard:
    """Boards of any profile."""

    def make(name: str) -> SimulatedBoard:
        return create_board(load_profile(name), tmp_path / name, prebuilt=simulator)

    return make


@pytest.fixture
def board(make_board: MakeBoard) -> SimulatedBoard:
    """The guide's board: eight 910B4."""
    return make_board("910b4-8")


@pytest.fixture
def control(board: SimulatedBoard) -> Iterator[BoardControl]:
    """A handle on that board."""
    with board.control() as control:
        yield control


@pytest.fixture
def load() -> Load:
    """Loads a board's library by its path and initialises it."""

    def load(library: Path) -> RawDcmi:
        dcmi = RawDcmi(library)
        assert dcmi.code("dcmi_init") == 0
        return dcmi

    return load


@pytest.fixture
def dcmi(board: SimulatedBoard, load: Load) -> RawDcmi:
    """That board's library, initialised."""
    return load(board.library)
