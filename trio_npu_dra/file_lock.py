"""Whose turn it is among the driver's processes on a node: flock(2), waited for without a thread.

The kernel takes a lock from a process that ends, however it ends, so no lock outlives its holder.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

from trio_npu_dra.errors import StorageError


@asynccontextmanager
async def hold(
    path: Path, *, pause_seconds: float, patience_seconds: float = math.inf
) -> AsyncIterator[int]:
    """Hold the lock on a file while inside. Cancelled while waiting, nothing is held.

    Args:
        path: The lock file; made when missing, never removed.
        pause_seconds: Between two tries.
        patience_seconds: How long to go on trying.

    Yields:
        The descriptor of the open file.

    Raises:
        StorageError: The file cannot be opened, or another process keeps it for too long.
    """
    with _translated(f"open {path}"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        give_up_at = trio.current_time() + patience_seconds
        while not _try_lock(descriptor):
            if trio.current_time() > give_up_at:
                raise StorageError(f"another process has held {path} for {patience_seconds:.0f} s")
            await trio.sleep(pause_seconds)
        yield descriptor
    finally:
        os.close(descriptor)  # which unlocks


def _try_lock(descriptor: int) -> bool:
    with _translated("lock the lock file"):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@contextmanager
def _translated(action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {action}: {error.strerror}") from error
