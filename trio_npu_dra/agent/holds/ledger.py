"""Who holds what, in memory and in one file a holder: what survives a restart of this driver.

The kubelet does not prepare a running pod's claims again when only this driver restarts, so nothing
that may still be true is thrown away:

- A record of a newer version is read as far as it is known, and written back whole.
- One that cannot be read costs its own holder only (`holds.files`).
- Records that somebody takes away, the whole folder or some of its files, are written again from
  memory, which is the truth as long as this process lives.

A reboot of the node is the exception: records of an earlier boot are forgotten. No container has
survived it, so they would only hold NPUs against the next claim, until the kubelet unprepares them
a minute later; and the NPUs may be numbered anew, so that a CDI file made from such a record could
give another one's. Nothing is lost by it: the kubelet keeps no *prepared* mark over a restart, and
prepares the claims of each pod again before it starts the pod's containers anew.

The same goes for records that cannot be read: those that are there before anybody has written in
this boot are of an earlier one.

What was made for a holder can outlast the reboot: the Ascend driver makes vNPUs anew. Their records
are *undoing* then, so that they are removed before the claim, or another one, gets a partition
again.

So a record is synced to the disk, to be whole or absent after a power cut, but its folder is not:
a name that the power cut loses, or brings back, is one that the next start would have forgotten.
The folder is synced only for records of what can outlast a reboot.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from trio_npu_dra.agent.holds.encoding import checked, encode
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.agent.holds.files import EntryFiles, Found
from trio_npu_dra.agent.holds.hold import Hold, HolderKind
from trio_npu_dra.agent.holds.lock import NodeLock, Turn
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.boot import BOOT_ID, read_boot_id
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

CLAIMS = "claims"
"""The folder of the records, in the state folder."""


class Ledger:
    """All holds of the node, in memory; files change with them, inside `exclusive`.

    Args:
        state_folder: Holds `claims/<uid>.json` and `serialize.lock`; made when missing.
        boot_id_file: Tells the boot of the node; without it no record is of an earlier one.

    Attributes:
        state_folder: As given.
        problem: Why claims cannot be served now, as the last who tried found; empty when they can.
        holds: All holds, as of the last critical section.
    """

    def __init__(self, state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> None:
        self.problem = Observable("")
        self.holds: Observable[tuple[Hold, ...]] = Observable(())
        self.state_folder = state_folder
        self._boot_id = read_boot_id(boot_id_file)
        self._files = EntryFiles(state_folder / CLAIMS, self._boot_id)
        self._lock = NodeLock(state_folder / "serialize.lock", self._boot_id)
        self._turn: Turn | None = None
        self._mark: bytes | None = None
        self._has_changed = False
        self._known = Found()
        self._by_uid = MappingProxyType(self._known.entries)

    @property
    def by_uid(self) -> Mapping[str, Entry]:
        """Entries by the holder's UID, as of the last critical section."""
        return self._by_uid

    def entry(self, uid: str) -> Entry:
        """The entry of a holder that had one before the last critical section.

        Raises:
            StorageError: Its record cannot be read any more.
        """
        try:
            return self._by_uid[uid]
        except KeyError:
            raise StorageError(f"the record of {uid} cannot be read any more") from None

    @property
    def unreadable(self) -> AbstractSet[str]:
        """UIDs of holders whose record cannot be read; their pods may still run."""
        return frozenset(self._known.unreadable)

    def remembered_chips(self) -> tuple[Chip, ...]:
        """The chips that are held exclusively, as recorded when they were allocated."""
        return tuple(
            {
                chip.device_node: chip
                for entry in self._by_uid.values()
                if entry.holder.kind is not HolderKind.LEFTOVER
                if not all(hold.observer for hold in entry.holds)
                for device in entry.devices
                for chip in device.chips
            }.values()
        )

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """The node's critical section: the ledger is up to date within.

        There is no checkpoint between the start of the body and the end of the section but those of
        the body.

        Raises:
            StorageError: The lock or the folder cannot be used. What was put or removed inside
                then holds already.
        """
        is_inside = False
        try:
            storage.make_folder(self.state_folder, mode=storage.PLUGIN_FOLDER_MODE)
            async with self._lock.hold() as self._turn:
                try:
                    self._catch_up(self._turn)
                    self.problem.set("")
                    is_inside = True
                    yield
                finally:
                    self._leave()
        except StorageError as error:
            if not is_inside:  # what is raised inside is for those who are
                self.problem.set(str(error))
            raise

    def _leave(self) -> None:
        self._turn = None
        if self._has_changed:
            self._has_changed = False
            self.holds.set(tuple(hold for entry in self._by_uid.values() for hold in entry.holds))

    def put(self, entry: Entry) -> Entry:
        """Write an entry over the one that the holder may have, in one rename.

        Returns:
            The entry as it is held now.

        Raises:
            RecordRefused: The record could not be read back; the old one stays.
            StorageError: The disk is full, read-only, or fails. What is held then is what
                `by_uid` says: the old record, or the new one if only its sync failed.
        """
        entry = replace(entry, boot_id=self._boot_id)
        data = checked(entry)
        self._announce_change()
        self._write(entry, data)
        return entry

    def _write(self, entry: Entry, data: bytes) -> None:
        self._files.write(entry.uid, data, is_twice=entry.outlasts_boot)
        self._known.entries[entry.uid] = entry
        self._known.unreadable.discard(entry.uid)
        self._known.withheld.discard(entry.uid)
        if entry.outlasts_boot:
            self._files.sync()

    def remove(self, uid: str) -> None:
        """Remove the record of a holder, or what was set aside of it.

        Raises:
            StorageError: The file cannot be removed, or a power cut may bring it back. `by_uid`
                says which.
        """
        self._announce_change()
        self._files.remove(uid)
        known = self._known.entries.pop(uid, None)
        self._known.unreadable.discard(uid)
        self._known.withheld.discard(uid)
        if known is not None and known.outlasts_boot:
            self._files.sync()

    def write_missing(self) -> None:
        """Write again what somebody took away; inside `exclusive`.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        if self._restore():
            self._announce_change()

    def _restore(self) -> bool:
        """The same, without telling other instances; whether anything was missing.

        Of a holder whose record could not be read an empty file is left, so that the next start
        knows of it too.
        """
        lost, unknown = self._files.missing(self._by_uid, self._known.unreadable)
        for uid in lost:
            self._write(self._by_uid[uid], encode(self._by_uid[uid]))
        for uid in unknown:
            self._files.mark_unreadable(uid)
            self._known.withheld.discard(uid)
        if lost or unknown:
            log.warning("claim records were missing and are rewritten", extra={"uids": lost})
        return bool(lost or unknown)

    def _announce_change(self) -> None:
        assert self._turn is not None, "holds change inside exclusive() only"
        self._turn.announce()
        self._mark = self._turn.mark
        self._has_changed = True

    def _catch_up(self, turn: Turn) -> None:
        """Make memory what the folder says, or the folder what memory says if it was taken away."""
        was_missing = self._files.make_folder()
        if self._mark and not turn.mark:
            # The lock file was taken away, perhaps with records. Our mark stays as it is, so that
            # we read again what others add, until somebody writes a new one.
            self._restore()
            self._read(turn)
        elif was_missing and self._mark is not None:
            # No announcement is needed: the last writer restores its own records and changes the
            # mark, and we read again.
            self._restore()
        elif turn.mark != self._mark or self._known.withheld:
            self._read(turn)
            self._mark = turn.mark

    def _read(self, turn: Turn) -> None:
        self._known = self._files.read(is_first_of_boot=turn.is_first_of_boot)
        self._by_uid = MappingProxyType(self._known.entries)
        self._has_changed = True
