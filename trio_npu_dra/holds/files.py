"""The ledger's folder: one file a holder, and what is found there that cannot be read.

A record that cannot be read costs its own holder only. A broken one is set aside under a name that
each start looks at again: a newer version that comes back, or a person, may read it. So is what is
no file of ours under a record's name (`storage`). A record that cannot be read because of an I/O
error is left in place. In any case its holder is *unreadable*: it keeps its CDI file, and that file
still guards its NPUs (`claims.holding`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from trio_npu_dra import storage
from trio_npu_dra.errors import ForeignFile, RecordCorrupt, StorageError
from trio_npu_dra.holds.encoding import parse
from trio_npu_dra.holds.entry import Entry, State

log = logging.getLogger(__name__)

_FOLDER_MODE = 0o700
SUFFIX = ".json"
"""How names of records end."""
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

    def write(self, uid: str, data: bytes) -> None:
        """Replace the record of a holder, in one rename.

        Raises:
            StorageError: The disk is full, read-only, or fails; the old record stays.
        """
        storage.write_atomic(self._path(uid), data)

    def remove(self, uid: str) -> None:
        """Remove the record of a holder, and what was set aside of it.

        Raises:
            StorageError: A file cannot be removed.
        """
        storage.remove(self._path(uid))
        storage.remove(self._aside(uid))

    def sync(self) -> None:
        """See that a power cut neither loses records nor brings them back.

        Raises:
            StorageError: The disk fails.
        """
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
        return found

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
            self._accept(parse(content, uid=uid), path, found)
        except (ForeignFile, RecordCorrupt) as error:
            found.unreadable.add(uid)
            self._set_aside(path, uid, error)
        except StorageError as error:
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
