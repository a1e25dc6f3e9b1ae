"""A lock among processes on a node: flock(2), which the kernel takes from a process that ends.

A lock is on the open file, not on its name. So it counts only while the name is that file's: if the
file was removed or replaced meanwhile, another process may have locked the new one.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base import storage

_SIZE_LIMIT: Final = 256  # bytes that a lock file says


class FileLock:
    """The lock on one file, which this process has or tries to get.

    Args:
        path: The lock file; made when missing, never removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, os.stat_result] | None = None
        self._is_locked = False

    @property
    def is_held(self) -> bool:
        """Whether this process has the lock, and the file still has its name."""
        return self._is_locked and self._has_name()

    def try_lock(self) -> bool:
        """Whether this process has the lock now.

        It waits at the file that it has opened, even if that file loses its name meanwhile: so it
        waits for the holder of a file that somebody removed.

        Raises:
            StorageError: The file cannot be opened.
        """
        if self.is_held:
            return True
        if self._is_locked:
            self.close()
        if self._opened is None:
            with storage.translated(f"open {self.path}"):
                self._opened = storage.open_file(self.path, os.O_RDWR | os.O_CREAT)
        with storage.translated(f"lock {self.path}"):
            try:
                fcntl.flock(self._opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        self._is_locked = True
        if not self._has_name():
            self.close()
        return self._is_locked

    def read(self) -> bytes:
        """What the file says; empty if `try_lock` has not opened it."""
        with storage.translated(f"read {self.path}"):
            return os.pread(self._opened[0], _SIZE_LIMIT, 0) if self._opened else b""

    def write(self, text: bytes) -> None:
        """Have the file say something to those who wait for it; only the holder may.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        assert self._opened is not None
        assert self._is_locked
        with storage.translated(f"write {self.path}"):
            os.ftruncate(self._opened[0], 0)
            os.pwrite(self._opened[0], text, 0)

    def unlock(self) -> None:
        """Let go of the lock, and keep the file open to wait at."""
        self._is_locked = False
        if self._opened is not None:
            fcntl.flock(self._opened[0], fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which unlocks it."""
        self._is_locked = False
        if self._opened is not None:
            os.close(self._opened[0])
            self._opened = None

    def _has_name(self) -> bool:
        assert self._opened is not None
        with storage.translated(f"look at {self.path}"), suppress(FileNotFoundError):
            return os.path.samestat(os.lstat(self.path), self._opened[1])
        return False
