"""One owner a node: the instance of the driver that reads and writes its state.

It holds locks from before it reads the records until it has done with its last call. An instance
that finds them held waits, and learns when the owner is about to end, so that the kubelet knows it
by then (docs/architecture.md, "The life of an instance").

The locks are those of releases that let two instances write. Such a release holds `publisher.lock`
from its first look at the chips to its end, and takes the others for each change: of records, of
`faults.json`, and of hardware (also in the folder `steps`). So we wait while it runs; and if it
starts beside an owner, each of its calls waits for the owner's end.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

import trio

from trio_npu_dra.kit.base import disk, storage
from trio_npu_dra.kit.base.errors import LockHeld, StorageError
from trio_npu_dra.kit.base.file_lock import FileLock
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import is_refused, is_socket

log = logging.getLogger(__name__)

_NAMES: Final = ("publisher.lock", "serialize.lock", "faults.lock", "share-flags.lock")
_STEPS: Final = "steps"
_PAUSE_SECONDS: Final = 0.05  # between two tries; calls may wait meanwhile
_UNREADY_SECONDS: Final = 30.0
"""How long the locks must be free before an instance that could not serve takes them: the owner's
container may be starting again."""


class Life(StrEnum):
    """How far an instance is."""

    WAITS = "waits"
    TAKES_OVER = "takes over"
    """The owner is about to end: the kubelet may know this instance, which keeps its calls."""
    OWNS = "owns"
    DRAINS = "drains"


class Owner:
    """The ownership of a node, which this instance has or waits for.

    Args:
        folder: The driver's folder on the node.
        service: The socket that this instance serves as long as it owns.

    Attributes:
        life: How far this instance is.
        problem: Why the locks cannot be tried; empty if they can.
    """

    def __init__(self, folder: Path, service: Path) -> None:
        self.life = Observable(Life.WAITS)
        self.problem = Observable("")
        self._folder = folder
        self._service = service
        self._locks = [FileLock(folder / name) for name in _NAMES]

    async def try_take(self) -> bool:
        """Own the node if no other instance does; whether this one owns it now."""
        is_taken, _ = await self._attempt()
        return is_taken

    async def wait(self, could_serve: Callable[[], bool]) -> None:
        """Wait until this instance owns the node; it waits longer if it could not serve."""
        since = trio.current_time()
        free_since: float | None = None
        while True:
            is_taken, is_invited = await self._attempt()
            now = trio.current_time()
            if is_taken:
                free_since = now if free_since is None else free_since
                # An instance that was invited keeps calls, also while it drains.
                is_due = self.life.value is not Life.WAITS or could_serve()
                if is_due or now - free_since >= _UNREADY_SECONDS:
                    break
                self._unlock()
            else:
                free_since = None
                if is_invited and could_serve() and self.life.value is Life.WAITS:
                    self.life.set(Life.TAKES_OVER)
            await trio.sleep(_PAUSE_SECONDS)
        log.info("serving in place of an instance that ended", extra={"waited": now - since})

    def check(self) -> None:
        """Lock files again that somebody removed.

        Raises:
            LockHeld: Another instance has done so before: only a new start helps.
            StorageError: One cannot be opened.
        """
        for lock in self._locks:
            if not lock.is_held and not lock.try_lock():
                raise LockHeld(f"{lock.path} was removed, and is another process's lock now")

    def invite(self) -> None:
        """Tell an instance that waits that this one is about to end."""
        with suppress(StorageError):  # then the kubelet knows nobody for a second
            self.check()
            self._locks[0].write(os.fsencode(self._service))

    def free(self) -> None:
        """Let the next instance own the node; safe once nothing of this one writes."""
        for lock in self._locks:
            lock.close()

    async def _attempt(self) -> tuple[bool, bool]:
        """As `_try`; a disk that fails is one problem in the log."""
        try:
            result = await disk.run(self._try)
        except StorageError as error:
            if self.problem.set(str(error)):
                log.error("the node cannot be taken over", extra={"problem": str(error)})
            return False, False
        self.problem.set("")
        return result

    def _try(self) -> tuple[bool, bool]:
        """Whether the locks are taken, and whether their holder is about to end."""
        is_taken = is_invited = False
        try:
            # All or none: between them an older release has its turns.
            is_taken = all(lock.try_lock() for lock in self._locks) and self._have_steps_ended()
            said = self._locks[0].read()
            if is_taken and said:
                self._locks[0].write(b"")
            elif said:
                ending = Path(os.fsdecode(said))
                is_invited = is_socket(ending) and not is_refused(ending)
        finally:
            if not is_taken:
                self._unlock()
        return is_taken, is_invited

    def _unlock(self) -> None:
        for lock in self._locks:
            lock.unlock()

    def _have_steps_ended(self) -> bool:
        """Whether no older release, which has no turn now, is at the hardware for a claim."""
        for path in (self._folder / _STEPS).glob("*.lock"):
            lock = FileLock(path)
            try:
                if not lock.try_lock():
                    return False
                storage.remove(path)
            finally:
                lock.close()
        return True
