"""Whose turn it is among the driver's processes on a node: flock(2), waited for without a thread.

The kernel takes a lock from a process that ends, however it ends, so no lock outlives its holder.

A lock is on the open file, not on its name. So it counts only if the name is still that file's once
the lock is taken: whoever opened a file that was removed or replaced meanwhile tries again.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import trio

from trio_npu_dra import storage
from trio_npu_dra.errors import ForeignFile, LockHeld


@asynccontextmanager
async def hold(
    path: Path, *, pause_seconds: float, patience_seconds: float = math.inf
) -> AsyncIterator[int]:
    """Hold the lock on a file while inside. Cancelled while waiting, nothing is held.

    Args:
        path: The lock file; made when missing, never removed. Something foreign in its place is
            set aside.
        pause_seconds: Between two tries.
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
    with closing(_tries(path)) as tries:
        while (descriptor := next(tries)) is None:
            if trio.current_time() > give_up_at:
                raise _held(path, patience_seconds)
            await trio.sleep(pause_seconds)
    return descriptor


@contextmanager
def hold_blocking(path: Path, *, pause_seconds: float, patience_seconds: float) -> Iterator[None]:
    """The same as `hold` for a thread of its own; on the event loop it blocks everybody."""
    give_up_at = time.monotonic() + patience_seconds
    with closing(_tries(path)) as tries:
        while (descriptor := next(tries)) is None:
            if time.monotonic() > give_up_at:
                raise _held(path, patience_seconds)
            time.sleep(pause_seconds)
    try:
        yield
    finally:
        os.close(descriptor)


def _held(path: Path, seconds: float) -> LockHeld:
    return LockHeld(f"another process has held {path} for {seconds:.0f} s")


def _tries(path: Path) -> Generator[int | None, None, None]:
    """A `None` for each pause to be made, then the descriptor of the locked file."""
    while True:
        if (opened := _try_open(path)) is not None:
            descriptor, found = opened
            is_ours = False
            try:
                while not _try_lock(path, descriptor):
                    yield None
                is_ours = _names(path, found)
                if is_ours:
                    yield descriptor
            finally:
                if not is_ours:
                    os.close(descriptor)
        yield None


def _try_lock(path: Path, descriptor: int) -> bool:
    with storage.translated(f"lock {path}"):
        return storage.try_lock(descriptor)


def _try_open(path: Path) -> tuple[int, os.stat_result] | None:
    """Open the lock file; `None` when something foreign was there and it has to be tried again."""
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
    """Set aside what has the lock's name.

    One instance at a time, under a lock on the folder: the second could else set aside the new file
    that the first has locked already.
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
    try:
        return os.path.samestat(path.lstat(), found)
    except FileNotFoundError:
        return False
