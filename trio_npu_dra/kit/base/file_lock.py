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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

import trio

from trio_npu_dra.kit.base import disk, storage
from trio_npu_dra.kit.base.errors import ForeignFile, LockHeld, StorageError

log = logging.getLogger(__name__)

T = TypeVar("T")


def hold(
    path: Path, *, pause_seconds: float, patience_seconds: float = math.inf
) -> AbstractAsyncContextManager[int]:
    """`hold_then`, and yield the descriptor of the open file."""
    return hold_then(path, pause_seconds=pause_seconds, patience_seconds=patience_seconds, then=int)


@asynccontextmanager
async def hold_then(
    path: Path,
    *,
    pause_seconds: float,
    patience_seconds: float,
    first: Callable[[], object] = lambda: None,
    then: Callable[[int], T],
) -> AsyncIterator[T]:
    """Hold the lock on a file while inside; a cancelled wait holds nothing.

    Args:
        path: The lock file; made when missing, never removed. A foreign file, folder or link in its
            place is set aside.
        pause_seconds: Time between two tries.
        patience_seconds: Time for all tries.
        first: Called before each try, by the thread that tries.
        then: Called with the descriptor of the open file as soon as it is locked, by the thread
            that has done so (`disk.run`).

    Yields:
        What *then* returned.

    Raises:
        LockHeld: Another process holds it for longer.
        StorageError: The file cannot be opened.
    """
    give_up_at = trio.current_time() + patience_seconds
    with _Contender(path) as contender:

        def attempt() -> tuple[T] | None:
            first()
            descriptor = contender.try_lock()
            return None if descriptor is None else (then(descriptor),)

        while (locked := await disk.run(attempt)) is None:
            if trio.current_time() > give_up_at:
                raise LockHeld(_HELD.format(path, patience_seconds))
            await trio.sleep(pause_seconds)
        yield locked[0]


@asynccontextmanager
async def hold_patiently(
    path: Path, *, pause_seconds: float, waits: str, on_wait: Callable[[], object]
) -> AsyncIterator[None]:
    """Hold the lock while inside, however long the wait; also while the file cannot be used yet.

    Args:
        path: As for `hold`.
        pause_seconds: Time between two tries.
        waits: The log line about the work that waits, once for each problem with the file.
        on_wait: Called before each pause.
    """
    logged = ""
    with _Contender(path) as contender:
        while True:
            try:
                if await disk.run(contender.try_lock) is not None:
                    break
            except StorageError as error:
                contender.close()
                if str(error) != logged:
                    logged = str(error)
                    log.error(waits, extra={"problem": logged})
            on_wait()
            await trio.sleep(pause_seconds)
        yield


@contextmanager
def hold_blocking(path: Path, *, pause_seconds: float, patience_seconds: float) -> Iterator[None]:
    """`hold_then` for a thread of its own: on the event loop it blocks all tasks."""
    give_up_at = time.monotonic() + patience_seconds
    with _Contender(path) as contender:
        while contender.try_lock() is None:
            if time.monotonic() > give_up_at:
                raise LockHeld(_HELD.format(path, patience_seconds))
            time.sleep(pause_seconds)
        yield


_HELD = "another process has held {} for {:.0f} s"


class _Contender:
    """A process that waits for the lock, then has it until the end of the block.

    It waits at the file that it has opened, even if that file loses its name meanwhile: so it waits
    for the holder of a file that somebody removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, os.stat_result] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, which unlocks it."""
        if self._opened is not None:
            os.close(self._opened[0])
        self._opened = None

    def try_lock(self) -> int | None:
        """The descriptor of the locked file, or `None` to try again later."""
        with storage.translated(f"open {self._path}"):
            if self._opened is None:
                try:
                    self._opened = _open(self._path)
                except ForeignFile:
                    _make_way(self._path)
                    return None
        descriptor, found = self._opened
        with storage.translated(f"lock {self._path}"):
            if not storage.try_lock(descriptor):
                return None
        with storage.translated(f"look at {self._path}"), suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(self._path), found):
                return descriptor
        self.close()
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
