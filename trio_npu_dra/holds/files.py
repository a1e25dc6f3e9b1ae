"""The ledger's folder: one file a holder, and what is found there that cannot be read.

A record that cannot be read costs its own holder only. A broken one is set aside under a name that
each start looks at again: a newer version that comes back, or a person, may read it. So is what is
no file of ours under a record's name (`storage`). A record that cannot be read because of an I/O
error is left in place. In any case its holder is *unreadable*: it keeps its CDI file, and that file
still guards its NPUs (`claims.holding`).

What was made for a holder has to be removed, so its record must not be lost: it is there twice. The
copy is written before the record, in a folder of its own, and is used where the record cannot be
read. A copy without a record is of a holder that is gone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from trio_npu_dra import storage
from trio_npu_dra.errors import ForeignFile, RecordCorrupt, StorageError
from trio_npu_dra.holds.encoding import encode, parse
from trio_npu_dra.holds.entry import Entry, State

log = logging.getLogger(__name__)

_FOLDER_MODE = 0o700
SUFFIX = ".json"
"""How names of records end."""
COPIES = "copies"
"""The folder with copies, beside that of the records."""
ASIDE = ".json.aside"
"""How names of those end that were set aside."""


@dataclass(kw_only=True)
class Found:
    """What the folder says.

    Attributes:
        entries: The records, by UID.
        unreadable: UIDs of holders whose record cannot be read; their pods may still run.
        withheld: Those among them whose record the disk does not give: it may do so later.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    withheld: set[str] = field(default_factory=set)


class EntryFiles:
    """The records in one folder.

    Args:
        folder: Where they are.
        boot_id: The boot of the node; records of another one are forgotten, or *undoing* where
            something may have outlasted the reboot. Empty when unknown: then no record is of an
            earlier one.
    """

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = folder
        self._copies = folder.with_name(COPIES)
        self._boot_id = boot_id
        self._named: set[str] = set()

    def make_folder(self) -> bool:
        """Make the folder, or put back its mode and owner.

        Returns:
            Whether it was missing.

        Raises:
            StorageError: It cannot be made, or something else has its name.
        """
        return storage.make_folder(self._folder, mode=_FOLDER_MODE)

    def write(self, entry: Entry) -> None:
        """Replace the record of a holder, in one rename.

        Raises:
            StorageError: The disk is full, read-only, or fails; the old record stays.
        """
        content = encode(entry)
        if entry.outlasts_boot:
            self._write_copy(entry.uid, content)
        storage.write_atomic(self._path(entry.uid), content)
        if entry.outlasts_boot:
            storage.sync_folder(self._folder)

    def remove(self, uid: str, *, outlasts_boot: bool = False) -> None:
        """Remove the record of a holder, and what was set aside of it.

        Args:
            uid: The holder's UID.
            outlasts_boot: Whether a power cut must not bring it back.

        Raises:
            StorageError: A file cannot be removed.
        """
        storage.remove(self._path(uid))
        storage.remove(self._aside(uid))
        storage.remove(self._copy(uid))
        if outlasts_boot:
            storage.sync_folder(self._folder)

    def mark_unreadable(self, uid: str) -> None:
        """Leave an empty file, so that the next start knows of the holder too.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        storage.write_atomic(self._aside(uid), b"")

    def missing(
        self, entries: Iterable[str], unreadable: Iterable[str]
    ) -> tuple[list[str], list[str]]:
        """Which of these holders have no file, each of them by UID.

        Raises:
            StorageError: The folder cannot be read.
        """
        with storage.translated(f"read {self._folder}"), os.scandir(self._folder) as found:
            is_file = {entry.name: entry.is_file(follow_symlinks=False) for entry in found}
        return (
            [uid for uid in entries if not is_file.get(f"{uid}{SUFFIX}")],
            [
                uid
                for uid in unreadable
                if is_file.keys().isdisjoint({f"{uid}{SUFFIX}", f"{uid}{ASIDE}"})
            ],
        )

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}{SUFFIX}"

    def _aside(self, uid: str) -> Path:
        return self._folder / f"{uid}{ASIDE}"

    def _copy(self, uid: str) -> Path:
        return self._copies / f"{uid}{SUFFIX}"

    def _write_copy(self, uid: str, content: bytes) -> None:
        try:
            storage.make_folder(self._copies, mode=_FOLDER_MODE)
        except ForeignFile:
            storage.set_aside(self._copies)
            storage.make_folder(self._copies, mode=_FOLDER_MODE)
        storage.write_atomic(self._copy(uid), content)

    # --- reading the folder ----------------------------------------------------------------------

    def read(self) -> Found:
        """Read all that is there.

        Raises:
            StorageError: The folder cannot be read.
        """
        with storage.translated(f"read {self._folder}"):
            paths = sorted(self._folder.iterdir())  # a record before what is aside of it
        found = Found()
        for path in paths:
            self._read_file(path, found)
        self._remove_lone_copies({path.name for path in paths})
        return found

    def _remove_lone_copies(self, names: Container[str]) -> None:
        """Remove copies without a record, and what killed writers left, as far as it goes."""
        try:
            copies = list(self._copies.iterdir())
        except OSError:  # there are none yet
            return
        for path in copies:
            with suppress(StorageError):
                if storage.is_unfinished(path.name):
                    storage.remove_if_abandoned(path)
                elif path.name not in names:
                    storage.remove(path)

    def _read_file(self, path: Path, found: Found) -> None:
        name = path.name
        if storage.is_unfinished(name):
            storage.remove_if_abandoned(path)
        elif name.startswith(".") or not name.endswith((SUFFIX, ASIDE)):
            if not storage.is_set_aside(name) and self._is_news(path):
                log.warning("something foreign among the claim records", extra={"path": str(path)})
        elif name.endswith(ASIDE):
            self._look_aside(path, name.removesuffix(ASIDE), found)
        else:
            self._read_record(path, name.removesuffix(SUFFIX), found)

    def _read_record(self, path: Path, uid: str, found: Found) -> None:
        try:
            content = storage.read_bytes(path) or b""
            entry = parse(content, uid=uid)
        except StorageError as error:
            if not self._read_copy(path, uid, error, found):
                self._give_up(path, uid, error, found)
            return
        self._accept(entry, path, found)
        if entry.outlasts_boot and not self._copy(uid).exists():  # an earlier version has none
            with suppress(StorageError):
                self._write_copy(uid, content)

    def _read_copy(self, path: Path, uid: str, error: StorageError, found: Found) -> bool:
        """Take a record that cannot be read from its copy, and write it anew, if there is one."""
        try:
            content = storage.read_bytes(self._copy(uid)) or b""
            entry = parse(content, uid=uid)
            if isinstance(error, ForeignFile):
                storage.set_aside(path)
            storage.write_atomic(path, content)
        except StorageError:
            return False
        log.error(
            "claim record cannot be read and is written anew from its copy",
            extra={"claim": str(entry), "path": str(path), "problem": str(error)},
        )
        self._accept(entry, path, found)
        return True

    def _give_up(self, path: Path, uid: str, error: StorageError, found: Found) -> None:
        """Note that a holder's record cannot be read."""
        if isinstance(error, ForeignFile | RecordCorrupt):
            found.unreadable.add(uid)
            self._set_aside(path, uid, error)
        else:
            found.unreadable.add(uid)
            found.withheld.add(uid)
            self._complain(path, str(error))

    def _accept(self, entry: Entry, path: Path, found: Found) -> None:
        self._named.discard(path.name)
        if not self._boot_id or entry.boot_id in {"", self._boot_id}:
            found.entries[entry.uid] = entry
            return
        if entry.outlasts_boot:
            found.entries[entry.uid] = replace(entry, state=State.UNDOING)
            return
        try:
            storage.remove(path)
        except StorageError as error:
            log.warning("claim record of an earlier boot stays: %s", error)
        log.info(
            "claim record of an earlier boot forgotten",
            extra={"claim": str(entry), "uid": entry.uid, "devices": entry.device_names},
        )

    def _look_aside(self, path: Path, uid: str, found: Found) -> None:
        """Take a record back that can be read by now, unless its claim was prepared again."""
        if uid in found.entries:
            return
        try:
            entry = parse(storage.read_bytes(path) or b"", uid=uid)
            storage.rename(path, self._path(uid))
        except StorageError:
            found.unreadable.add(uid)  # which was said when it was set aside
            return
        found.unreadable.discard(uid)
        self._accept(entry, self._path(uid), found)
        log.warning("claim record can be read again", extra={"claim": str(entry), "uid": uid})

    def _set_aside(self, path: Path, uid: str, error: StorageError) -> None:
        aside = self._aside(uid)
        try:
            if isinstance(error, ForeignFile) and os.path.lexists(aside):
                aside = storage.set_aside(path)  # what is aside already may be the claim's record
            else:
                storage.rename(path, aside)
        except StorageError as refusal:
            self._complain(path, f"{error}; {refusal}")
        else:
            log.error(
                "claim record cannot be read and was set aside; "
                "only its CDI file guards its NPUs now",
                extra={"path": str(aside), "problem": str(error)},
            )

    def _complain(self, path: Path, problem: str) -> None:
        if self._is_news(path):
            log.error(
                "claim record cannot be read; only its CDI file guards its NPUs now",
                extra={"path": str(path), "problem": problem},
            )

    def _is_news(self, path: Path) -> bool:
        """Whether nothing was said of *path* yet; true once."""
        is_news = path.name not in self._named
        self._named.add(path.name)
        return is_news
