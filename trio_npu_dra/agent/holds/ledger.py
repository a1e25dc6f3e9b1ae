"""All entries of the node, in memory and in one file a holder: they survive a restart.

The kubelet does not prepare a running pod's claims again when only this driver restarts, so the
ledger throws away nothing that may still be true:

- A record that cannot be read, such as one of a newer version, costs its own holder only
  (`holds.files`).
- Records that somebody removes, the whole folder or some files, are written again from memory,
  which is the truth as long as this process lives.

Records of an earlier boot of the node are the exception: they are forgotten. No container has
survived the boot, so they would only keep NPUs from the next claim, until the kubelet unprepares
their claims a minute later; and NPUs may have other numbers, so a CDI file made from such a record
could give a container another claim's. The kubelet keeps no *prepared* mark over a restart of its
own: it prepares the claims of each pod again before it starts the containers. Unreadable records
that exist before the first write in a boot are of an earlier boot too.

vNPUs outlast a reboot: the Ascend driver cuts them again. Their records are *undoing* then, so they
are removed before any claim gets a partition of the chip.

Hence only records of vNPUs are synced, and their folder with them. A power cut may lose, bring back
or empty any other, and each is one that the next start forgets: the lock file proves that a broken
one is of an earlier boot. (Where no boot has an id, a record is synced, so that it is whole or
absent.)
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import outcome
import trio

from trio_npu_dra.agent.holds.boot_mark import BootMark
from trio_npu_dra.agent.holds.encoding import encode
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.agent.holds.files import (
    CLAIMS,
    Found,
    missing_records,
    read_at_start,
    record_path,
)
from trio_npu_dra.agent.holds.hold import Hold, HolderKind
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.kit.base import disk, storage
from trio_npu_dra.kit.base.boot import BOOT_ID, read_boot_id
from trio_npu_dra.kit.base.errors import LockHeld, StorageError
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS: Final = 5.0
"""How long a call waits for another one's step; then it is refused, and tries again in its time."""

_FOLDER_MODE: Final = 0o700


class Ledger:
    """All holds of the node, in memory; files change with them, inside `exclusive`.

    The first section reads the records: by then this process owns the node (`holds.owner`).

    Args:
        state_folder: Holds `claims/<uid>.json` and the mark of the boot; made when missing.
        boot_id_file: Has the id of this boot; without it no record is of an earlier one.
        check: Raises an error if this process does not own the node any more; called by each
            section.

    Attributes:
        state_folder: As given.
        problem: Why the last critical section could not begin; empty if it did.
        holds: All holds, as of the last critical section.
        set_aside: Why the records of other holders cannot be read, by UID, as of then.
    """

    def __init__(
        self,
        state_folder: Path,
        *,
        boot_id_file: Path = BOOT_ID,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self.problem = Observable("")
        self.holds: Observable[tuple[Hold, ...]] = Observable(())
        self.set_aside: Observable[Mapping[str, str]] = Observable({})
        self.state_folder = state_folder
        self._boot_id = read_boot_id(boot_id_file)
        self._folder = state_folder / CLAIMS
        self._mark = BootMark(state_folder, self._boot_id)
        self._check = check
        self._alone = trio.Lock()
        self._is_inside = self._is_read = self._has_changed = False
        self._known = Found()
        self._steps: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    @property
    def by_uid(self) -> Mapping[str, Entry]:
        """Entries by the holder's UID: those of now, which do not change any more."""
        return self._known.entries

    @property
    def unreadable(self) -> AbstractSet[str]:
        """UIDs of holders whose record cannot be read; their pods may still run."""
        return frozenset(self._known.unreadable)

    def remembered_chips(self) -> tuple[Chip, ...]:
        """The chips that are held exclusively, as recorded when they were allocated."""
        return tuple(
            {
                chip.device_node: chip
                for entry in self.by_uid.values()
                if entry.holder.kind is not HolderKind.LEFTOVER
                if not all(hold.observer for hold in entry.holds)
                for device in entry.devices
                for chip in device.chips
            }.values()
        )

    async def within(self, body: Callable[[], T]) -> T:
        """Call *body* in the node's critical section: the ledger is up to date within.

        It runs to its end, in a thread of the daemon (`disk`): it must not use trio.

        Raises:
            StorageError: The lock or the folder cannot be used. Changes that *body* made stay.
        """
        async with self.exclusive(body) as result:
            return result

    @asynccontextmanager
    async def exclusive(self, body: Callable[[], T] = lambda: None) -> AsyncIterator[T]:  # type: ignore[assignment, return-value]
        """The critical section, to go on in after *body* without a thread."""

        def begin() -> outcome.Outcome[T]:
            storage.make_folder(self.state_folder, mode=storage.PLUGIN_FOLDER_MODE)
            self._check()
            self._catch_up()
            self._is_inside = True
            return outcome.capture(body)

        async with self._alone:
            try:
                result = await disk.run(begin)
                self.problem.set("")
                yield result.unwrap()
            except StorageError as error:
                if not self._is_inside:  # an error of the body is the caller's
                    self.problem.set(str(error))
                raise
            finally:
                self._is_inside = False
                if self._has_changed:
                    self._has_changed = False
                    entries = self.by_uid.values()
                    self.holds.set(tuple(hold for entry in entries for hold in entry.holds))
                    self.set_aside.set(dict(self._known.unreadable))

    @asynccontextmanager
    async def alone(
        self, name: str, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> AsyncIterator[None]:
        """Be the only task that takes steps for a claim, at a chip, or with the share flags.

        Raises:
            LockHeld: Another task does so for too long.
        """
        lock = self._steps.setdefault(name, trio.Lock())
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

    def put(self, entry: Entry) -> Entry:
        """Write an entry over the one that the holder may have, in one rename.

        Returns:
            The entry with its boot id.

        Raises:
            RecordCorrupt: The record could not be read back; the old one stays.
            StorageError: The disk is full, read-only, or fails. `by_uid` then has the old record,
                or the new one if only its sync failed.
        """
        entry = replace(entry, boot_id=self._boot_id)
        self._note_change()
        self._write(entry)
        return entry

    def _write(self, entry: Entry) -> None:
        path, sync = record_path(self._folder, entry.uid), entry.outlasts_boot or not self._boot_id
        storage.write_atomic(path, encode(entry), sync=sync)
        self._known.entries = {**self._known.entries, entry.uid: entry}
        self._known.unreadable.pop(entry.uid, None)
        if entry.outlasts_boot:
            storage.sync_folder(self._folder)

    def remove(self, uid: str) -> None:
        """Remove the record of a holder, also one that cannot be read.

        Raises:
            StorageError: The file cannot be removed, and `by_uid` has it; or a power cut may bring
                it back.
        """
        self._note_change()
        storage.remove(record_path(self._folder, uid))
        entries = dict(self._known.entries)
        known = entries.pop(uid, None)
        self._known.entries = entries
        self._known.unreadable.pop(uid, None)
        if known is not None and known.outlasts_boot:
            storage.sync_folder(self._folder)

    def write_missing(self) -> None:
        """Write records again that somebody removed; inside `exclusive`.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        lost = missing_records(self._folder, self._known)
        if not lost:
            return
        self._mark.forget()  # perhaps it was removed too
        self._mark.write()
        problem: StorageError | None = None
        for uid in lost:
            try:
                if uid in self.by_uid:
                    self._write(self.by_uid[uid])
                else:  # an empty file tells the next start of the holder
                    storage.write_atomic(record_path(self._folder, uid), b"", sync=False)
            except StorageError as error:  # a folder in its place costs no other claim
                problem = error
        if problem is not None:
            raise problem
        log.warning("claim records were missing and are rewritten", extra={"uids": lost})

    def _note_change(self) -> None:
        assert self._is_inside, "holds change inside exclusive() only"
        self._mark.write()
        self._has_changed = True

    def _catch_up(self) -> None:
        """Read the folder at the start, or restore it if it was removed."""
        was_missing = storage.make_folder(self._folder, mode=_FOLDER_MODE)
        if was_missing and self._is_read:
            self.write_missing()
        elif not self._is_read:
            is_first = self._mark.is_of_earlier_boot()
            self._known = read_at_start(self._folder, self._boot_id, is_first_of_boot=is_first)
            self._is_read = self._has_changed = True
