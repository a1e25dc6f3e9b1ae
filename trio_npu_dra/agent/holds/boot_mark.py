"""The mark of the last owner that wrote records: it tells whether one has written in this boot.

It is in the file `serialize.lock`: the id of the boot, and 16 hex digits by which an older release
knows that its copy of the records is old.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base.storage import open_file, read_bytes, translated

_MARK: Final = re.compile(rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})[0-9a-f]{16}")


class BootMark:
    """The mark in a state folder.

    Args:
        folder: The state folder.
        boot_id: This boot of the node; empty if it is unknown.
    """

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._path = folder / "serialize.lock"
        self._boot_id = boot_id.encode()
        self._is_written = False

    def is_of_earlier_boot(self) -> bool:
        """Whether no owner has written in this boot, as far as the mark proves it.

        Raises:
            StorageError: The file cannot be read.
        """
        marked = _MARK.fullmatch(read_bytes(self._path) or b"")
        return bool(self._boot_id and marked and marked[1] != self._boot_id)

    def write(self) -> None:
        """Write the mark of this boot, once; called before records change.

        The first one of a boot is on the disk before any record of the boot: a power cut must not
        leave an empty file, which does not prove that broken records are of an earlier boot.

        Raises:
            StorageError: The disk is full or fails.
        """
        if self._is_written:
            return
        with translated(f"write {self._path}"):
            descriptor, _ = open_file(self._path, os.O_RDWR | os.O_CREAT)
            try:
                is_first = not os.pread(descriptor, 64, 0).startswith(self._boot_id)
                os.pwrite(descriptor, self._boot_id + os.urandom(8).hex().encode(), 0)
                if is_first:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._is_written = True

    def forget(self) -> None:
        """Write it once more: the file may have been removed."""
        self._is_written = False
