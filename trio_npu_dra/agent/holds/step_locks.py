"""The locks under which steps are done: one a claim, one a chip, one for the share flags."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

import trio

from trio_npu_dra.kit.base.errors import LockHeld

PATIENCE_SECONDS: Final = 5.0
"""Then the call is refused, and tries again as long as it has time."""


class StepLocks:
    """Locks by name, among the tasks of this process."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(
        self, name: str, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> AsyncIterator[None]:
        """Hold the lock of a name while inside.

        Raises:
            LockHeld: Another task holds it for too long.
        """
        lock = self._locks.setdefault(name, trio.Lock())
        try:
            lock.acquire_nowait()
        except trio.WouldBlock:
            with trio.move_on_after(patience_seconds) as waiting:
                await lock.acquire()
            if waiting.cancelled_caught:
                raise LockHeld(f"{name} has been worked on for {patience_seconds:.0f} s") from None
        try:
            yield
        finally:
            lock.release()
