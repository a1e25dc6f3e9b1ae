"""A lock among the driver's processes on a node: flock(2), waited for without a thread.

The kernel takes a lock from a process that ends, however it ends, so no lock outlives its holder.

A lock is on the open file, not on its name. So it counts only if the name is still that file's once
the lock is taken: if the file was removed or replaced meanwhile, the process tries again.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self

import trio

from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import ForeignFile, LockHeld, StorageError

log = logging.getLogger(__name__)


@asynccontextmanager
async def hold(
    path: Path, *, pause_seconds: float, patience_seconds: float = math.inf
) -> AsyncIterator[int]:
    """Hold the lock on a file while inside; a cancelled wait holds nothing.

    Args:
        path: The lock file; made when missing, never removed. Something foreign in its place is
            set aside.
        pause_seconds: Time between two tries.
        patience_seconds: How long to go on trying.

    Yields:
        The descriptor of the open file.

    Raises:
        LockHeld: Somebody else keeps it for too long.
        StorageError: The file cannot be opened.
    """
    descriptor = await acquire(path, pause_seconds=pause_seconds, patience_seconds=patience_seconds)
    try:
        yield descriptor
    finally:
        os.close(descriptor)  # which unlocks


async def acquire(path: Path, *, pause_seconds: float, patience_seconds: float = math.inf) -> int:
    """Take the lock as `hold` does; the caller closes the descriptor, which unlocks."""
    give_up_at = trio.current_time() + patience_seconds
    with _Contender(path) as contender:
        while (descriptor := contender.try_lock()) is None:
            if trio.current_time() > give_up_at:
                raise _held(path, patience_seconds)
            await trio.sleep(pause_seconds)
    return descriptor


@asynccontextmanager
async def hold_patiently(path: Path, *, pause_seconds: float, waits: str) -> AsyncIterator[None]:
    """Hold the lock while inside, however long that takes; also where the file cannot be used yet.

    Args:
        path: As for `hold`.
        pause_seconds: Time between two tries.
        waits: Says in the log what waits while the file cannot be used; once for each problem.
    """
    logged = ""
    while True:
        try:
            descriptor = await acquire(path, pause_seconds=pause_seconds)
            break
        except StorageError as error:
            if str(error) != logged:
                logged = str(error)
                log.error(waits, extra={"problem": logged})
        await trio.sleep(pause_seconds)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def hold_blocking(path: Path, *, pause_seconds: float, patience_seconds: float) -> Iterator[None]:
    """The same as `hold` for a thread of its own; on the event loop it blocks everybody."""
    give_up_at = time.monotonic() + patience_seconds
    with _Contender(path) as contender:
        while (descriptor := contender.try_lock()) is None:
            if time.monotonic() > give_up_at:
                raise _held(path, patience_seconds)
            time.sleep(pause_seconds)
    try:
        yield
    finally:
        os.close(descriptor)


class _Contender:
    """A wait for the lock. It waits at the file that it has opened, also once that has no name.

    So the holder of a file that somebody removed is waited for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, os.stat_result] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def try_lock(self) -> int | None:
        """The descriptor of the locked file, then the caller's; `None` when to try again."""
        self._opened = self._opened or _try_open(self._path)
        if self._opened is None:
            return None
        descriptor, found = self._opened
        if not _try_lock(self._path, descriptor):
            return None
        if not _names(self._path, found):
            self._close()
            return None
        self._opened = None
        return descriptor

    def _close(self) -> None:
        if self._opened is not None:
            os.close(self._opened[0])
        self._opened = None


def _held(path: Path, seconds: float) -> LockHeld:
    return LockHeld(f"another process has held {path} for {seconds:.0f} s")


def _try_lock(path: Path, descriptor: int) -> bool:
    with storage.translated(f"lock {path}"):
        return storage.try_lock(descriptor)


def _try_open(path: Path) -> tuple[int, os.stat_result] | None:
    """Open the lock file; `None` when something foreign was there: the caller tries again."""
    with storage.translated(f"open {path}"):
        try:
            return _open(path)
        except ForeignFile:
            _make_way(path)
            return None


def _open(path: Path) -> tuple[int, os.stat_result]:
    descriptor, found = storage.open_file(path, os.O_RDWR | os.O_CREAT)
    if found.st_nlink > 1:
        os.close(descriptor)
        raise ForeignFile(f"{path} is another file too: it has {found.st_nlink} names")
    return descriptor, found


def _make_way(path: Path) -> None:
    """Set aside the thing that has the lock's name.

    One instance at a time does so, under a lock on the folder: otherwise the second could set aside
    the new file that the first has locked already.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not storage.try_lock(folder):
            return
        try:
            descriptor, _ = _open(path)
        except ForeignFile:
            storage.set_aside(path)
        else:
            os.close(descriptor)
    finally:
        os.close(folder)


def _names(path: Path, found: os.stat_result) -> bool:
    with storage.translated(f"look at {path}"):
        try:
            return os.path.samestat(os.lstat(path), found)
        except FileNotFoundError:
            return False
