"""One critical section for all writers of holds on this node.

Within the process it is a trio lock; between processes, as a rolling update has two, flock(2).
A writer replaces the mark in the lock file before it writes, and so tells the other instance that
its copy of the records is old. (The folder's mtime cannot tell: the kernel's clock for it ticks
every few milliseconds.) The mark begins with the boot id, so the first reader of a boot knows that
all records are of earlier boots.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio

from trio_npu_dra.kit.base import file_lock
from trio_npu_dra.kit.base.storage import translated

T = TypeVar("T")

_PATIENCE = 3.0  # seconds; the other instance needs milliseconds
_PAUSE = 0.002  # seconds between two tries
_MARK = re.compile(rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})[0-9a-f]{16}")


class Turn:
    """The time in which only this task of the node may read and write records."""

    def __init__(self, descriptor: int, boot_id: str) -> None:
        self._descriptor = descriptor
        self._boot_id = boot_id
        self._has_announced = False
        with translated("read the lock file"):
            self.mark = os.pread(descriptor, 64, 0)
        """The mark of the last writer; empty in a new file."""

    @property
    def is_first_of_boot(self) -> bool:
        """Whether no instance has written in this boot, as far as the mark proves it."""
        marked = _MARK.fullmatch(self.mark)
        return bool(self._boot_id and marked and marked[1] != self._boot_id.encode())

    def announce(self) -> None:
        """Tell other instances that the records change; called before they do.

        The first mark of a boot is on the disk before any record of the boot: a power cut must not
        leave an empty lock file, which does not prove that broken records are of an earlier boot.

        Raises:
            StorageError: The disk is full or fails.
        """
        if self._has_announced:
            return
        mark = f"{self._boot_id}{os.urandom(8).hex()}".encode()
        with translated("mark the lock file"):
            os.pwrite(self._descriptor, mark, 0)
            if not self.mark.startswith(self._boot_id.encode()):
                os.fsync(self._descriptor)
        self.mark, self._has_announced = mark, True


class NodeLock:
    """The lock on a state folder; make one a process.

    Args:
        path: The lock file; made when missing, never removed.
        boot_id: This boot of the node; empty if it cannot be told.
    """

    def __init__(self, path: Path, boot_id: str = "") -> None:
        self._path = path
        self._boot_id = boot_id
        self._in_process = trio.Lock()

    @asynccontextmanager
    async def hold(
        self,
        then: Callable[[Turn], T],
        first: Callable[[], object] = lambda: None,
    ) -> AsyncIterator[T]:
        """Wait for the turn, and yield what *then* makes of it; both as in `file_lock.hold_then`.

        Raises:
            StorageError: The file cannot be opened, or another process keeps it for 3 s.
        """
        try:
            self._in_process.acquire_nowait()
        except trio.WouldBlock:
            await self._in_process.acquire()
        try:
            async with file_lock.hold_then(
                self._path,
                pause_seconds=_PAUSE,
                patience_seconds=_PATIENCE,
                first=first,
                then=lambda descriptor: then(Turn(descriptor, self._boot_id)),
            ) as result:
                yield result
        finally:
            self._in_process.release()
