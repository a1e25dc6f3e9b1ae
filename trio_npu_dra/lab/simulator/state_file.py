"""The state file in use: locked reads and writes of single members."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.storage import translated
from trio_npu_dra.lab.simulator.layout import BOARD, DEVICE, FACTS, MAGIC, VERSION, Record, Value


class StateFile:
    """An open state file; every access happens inside `locked`.

    It is written with plain writes, not through a mapping: that wakes processes that watch the
    file, and readers' mappings show the change all the same.

    Args:
        path: The file `board.state` beside the simulated library.

    Raises:
        ConfigError: It cannot be opened, or is not a state file of this version.
    """

    def __init__(self, path: Path) -> None:
        self._thread_lock = threading.Lock()
        with translated(f"open simulator state {path}", ConfigError):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        found = os.fstat(self._descriptor).st_size, self.get(FACTS, 0, "magic")
        if found != (BOARD.size, tuple(MAGIC)) or self.get(FACTS, 0, "version") != VERSION:
            self.close()
            raise ConfigError(f"simulator state {path}: not a state file of version {VERSION}")

    def close(self) -> None:
        """Close the file; the board stays as it is."""
        os.close(self._descriptor)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude others: threads by a lock, processes by the file's lock."""
        with self._thread_lock:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def get(self, record: Record, base: int, name: str) -> Value:
        """A member of the record that starts at byte *base*."""
        member = record.fields[name]
        return member.decode(os.pread(self._descriptor, member.size, base + member.offset))

    def number(self, record: Record, base: int, name: str) -> int:
        """The same, of a member that is one number."""
        value = self.get(record, base, name)
        assert isinstance(value, int), name
        return value

    def put(self, record: Record, base: int, name: str, value: Value) -> None:
        """Write one member."""
        member = record.fields[name]
        self.write(base + member.offset, member.encode(value))

    def write(self, position: int, data: bytes) -> None:
        """Write bytes at a position of the file."""
        os.pwrite(self._descriptor, data, position)


def element(record: Record, name: str, index: int, base: int = 0) -> int:
    """The position of one element of the array *name*, in the record that starts at *base*."""
    member = record.fields[name]
    return base + member.offset + member.size // member.count * index


def device_position(index: int) -> int:
    """The position of the device with that index in the table."""
    return element(BOARD, "devices", index)


def device_positions(file: StateFile) -> dict[int, int]:
    """The position of each device's record, by physical id."""
    count = file.number(FACTS, 0, "device_count")
    places = [device_position(index) for index in range(count)]
    return {file.number(DEVICE, place, "physical_id"): place for place in places}
