"""Files that not even root can replace or remove, as when a disk refuses."""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# linux/fs.h. The numbers name a long, but the kernel reads and writes an int.
_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_IMMUTABLE: Final = 0x10


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Within the block a file cannot be changed, renamed, replaced or removed; it can be read."""
    before = _flags(path)
    _set_flags(path, before | _IMMUTABLE)
    try:
        yield
    finally:
        _set_flags(path, before)


def _flags(path: Path) -> int:
    with path.open("rb") as file:
        flags: int = struct.unpack("=ii", fcntl.ioctl(file, _GET_FLAGS, bytes(8)))[0]
    return flags


def _set_flags(path: Path, flags: int) -> None:
    with path.open("rb") as file:
        fcntl.ioctl(file, _SET_FLAGS, struct.pack("=ii", flags, 0))
