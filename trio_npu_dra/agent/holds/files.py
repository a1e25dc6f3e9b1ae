"""The ledger's folder: one file a holder, and what is found there that cannot be read.

A record that cannot be read costs its own holder only. A broken one is set aside under a name that
each start looks at again: a newer version that comes back, or a person, may read it. So is what is
no file of ours under a record's name (`storage`). A record that is empty, or cannot be read because
of an I/O error, is left in place. In any case its holder is *unreadable*: it keeps its CDI file,
and that file still guards its NPUs (`claims.exclusion`). After a reboot it guards nothing and goes,
as other records do, unless it names a vNPU.

What was made for a holder has to be removed, so its record must not be lost: it is there twice. The
copy is written before the record, in a folder of its own, and is used where the record cannot be
read. A copy without a record is of a holder that is gone.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from trio_npu_dra.agent.holds.encoding import parse
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import ForeignFile, RecordCorrupt, RecordRefused, StorageError

log = logging.getLogger(__name__)

_FOLDER_MODE = 0o700
COPIES = "copies"
"""The folder with copies, beside that of the records."""
_SUFFIX = ".json"
_ASIDE = ".json.aside"
_MOST_LINES = 20
_GUARDS = "only its CDI file guards its NPUs now, or its name if it is of a pod"
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,159})\.json(\.aside)?", re.ASCII)
_OF_VNPU = re.compile(rb'"vnpu"\s*:\s*[0-9]')


def named(name: str) -> tuple[str, bool] | None:
    """The UID of the holder whose record has this name, and whether it was set aside.

    None for what no record is called: UIDs have at most 128 letters, and a few of ours before them.
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], found[2] is not None)


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
        # Of one reading:
        self._is_first_of_boot = False
        self._said = 0  # records that cannot be read

    def make_folder(self) -> bool:
        """Make the folder, or put back its mode and owner.

        Returns:
            Whether it was missing.

        Raises:
            StorageError: It cannot be made, or something else has its name.
        """
        return storage.make_folder(self._folder, mode=_FOLDER_MODE)

    def write(self, uid: str, data: bytes, *, is_twice: bool) -> None:
        """Replace the record of a holder, in one rename; and its copy before it, or remove that.

        Raises:
            RecordRefused: A file of that name would not be read back.
            StorageError: The disk is full, read-only, or fails; the old record stays.
        """
        path = self._path(uid)
        if named(path.name) != (uid, False):
            raise RecordRefused(f"UID {uid!r} cannot be the name of a record")
        if is_twice:
            self._write_copy(uid, data)
        else:
            storage.remove(self._copy(uid))  # it says what the holder had before
        storage.write_atomic(path, data)

    def remove(self, uid: str) -> None:
        """Remove the record of a holder, and what was set aside of it.

        Raises:
            StorageError: A file cannot be removed.
        """
        storage.remove(self._path(uid))
        storage.remove(self._aside(uid))
        storage.remove(self._copy(uid))

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
            [uid for uid in entries if not is_file.get(f"{uid}{_SUFFIX}")],
            [
                uid
                for uid in unreadable
                if is_file.keys().isdisjoint({f"{uid}{_SUFFIX}", f"{uid}{_ASIDE}"})
            ],
        )

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}{_SUFFIX}"

    def _aside(self, uid: str) -> Path:
        return self._folder / f"{uid}{_ASIDE}"

    def _copy(self, uid: str) -> Path:
        return self._copies / f"{uid}{_SUFFIX}"

    def _write_copy(self, uid: str, data: bytes) -> None:
        try:
            storage.make_folder(self._copies, mode=_FOLDER_MODE)
        except ForeignFile:
            storage.set_aside(self._copies)
            storage.make_folder(self._copies, mode=_FOLDER_MODE)
        storage.write_atomic(self._copy(uid), data)

    # --- reading the folder ----------------------------------------------------------------------

    def read(self, *, is_first_of_boot: bool = False) -> Found:
        """Read all that is there.

        Args:
            is_first_of_boot: Whether nobody has written since the node booted: then what cannot be
                read is of an earlier boot.

        Raises:
            StorageError: The folder cannot be read.
        """
        with storage.translated(f"read {self._folder}"), os.scandir(self._folder) as there:
            # A record before what is aside of it.
            files = sorted((entry.name, _is_empty(entry)) for entry in there)
        found = Found()
        self._is_first_of_boot, self._said = is_first_of_boot, 0
        for name, is_empty in files:
            self._read_file(self._folder / name, found, is_empty=is_empty)
        self._remove_lone_copies({name for name, _ in files})
        if self._said > _MOST_LINES:
            log.error("%d more claim records cannot be read", self._said - _MOST_LINES)
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

    def _handle_empty(self, path: Path, uid: str, found: Found) -> None:
        """An empty file tells that there was a record; it stays, for there is nothing to keep."""
        if uid in found.entries or self._read_copy(path, uid, RecordCorrupt("it is empty"), found):
            return
        if self._is_forgotten(path, b""):
            return
        found.unreadable.add(uid)
        self._report_unreadable(path, "it is empty")

    def _read_file(self, path: Path, found: Found, *, is_empty: bool) -> None:
        known = named(path.name)
        if storage.is_unfinished(path.name):
            storage.remove_if_abandoned(path)
        elif known is None:
            if not storage.is_set_aside(path.name) and self._is_news(path):
                log.warning("something foreign among the claim records", extra={"path": str(path)})
        elif is_empty:
            self._handle_empty(path, known[0], found)
        elif known[1]:
            self._restore_aside(path, known[0], found)
        else:
            self._read_record(path, known[0], found)

    def _read_record(self, path: Path, uid: str, found: Found) -> None:
        content = b""
        try:
            content = storage.read_bytes(path) or b""
            entry = parse(content, uid=uid)
        except StorageError as error:
            if self._read_copy(path, uid, error, found):
                return
            if not isinstance(error, ForeignFile | RecordCorrupt):
                found.unreadable.add(uid)
                found.withheld.add(uid)
                self._report_unreadable(path, str(error))
            elif not self._is_forgotten(path, content):
                found.unreadable.add(uid)
                self._set_aside(path, uid, error)
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

    def _is_forgotten(self, path: Path, content: bytes) -> bool:
        """Remove what cannot be read and is of an earlier boot, unless it tells of a vNPU."""
        if not self._is_first_of_boot or _OF_VNPU.search(content):
            return False
        try:
            storage.remove(path)
        except StorageError as error:
            log.warning("claim record of an earlier boot stays: %s", error)
            return False
        if self._is_worth_a_line():
            log.warning(
                "claim record of an earlier boot, which could not be read, is forgotten",
                extra={"path": str(path)},
            )
        return True

    def _accept(self, entry: Entry, path: Path, found: Found) -> None:
        self._named.discard(path.name)
        if not self._boot_id or entry.boot_id in {"", self._boot_id}:
            found.entries[entry.uid] = entry
            return
        if entry.outlasts_boot:
            found.entries[entry.uid] = replace(entry, state=EntryState.UNDOING)
            return
        try:
            storage.remove(path)
        except StorageError as error:
            log.warning("claim record of an earlier boot stays: %s", error)
        log.info(
            "claim record of an earlier boot forgotten",
            extra={"claim": str(entry), "uid": entry.uid, "devices": entry.device_names},
        )

    def _restore_aside(self, path: Path, uid: str, found: Found) -> None:
        """Take a record back that can be read by now, unless its claim was prepared again."""
        if uid in found.entries:
            return
        content = b""
        try:
            content = storage.read_bytes(path) or b""
            entry = parse(content, uid=uid)
            storage.rename(path, self._path(uid))
        except (ForeignFile, RecordCorrupt):  # which was said when it was set aside
            if not self._is_forgotten(path, content):
                found.unreadable.add(uid)
            return
        except StorageError:
            found.unreadable.add(uid)
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
            self._report_unreadable(path, f"{error}; {refusal}")
        else:
            self._log_guarded("claim record cannot be read and was set aside", aside, str(error))

    def _report_unreadable(self, path: Path, problem: str) -> None:
        if self._is_news(path):
            self._log_guarded("claim record cannot be read", path, problem)

    def _log_guarded(self, what: str, path: Path, problem: str) -> None:
        if self._is_worth_a_line():
            log.error("%s; %s", what, _GUARDS, extra={"path": str(path), "problem": problem})

    def _is_worth_a_line(self) -> bool:
        """Count a record that cannot be read; whether the log names it, which it does of a few."""
        self._said += 1
        return self._said <= _MOST_LINES

    def _is_news(self, path: Path) -> bool:
        """Whether nothing was said of *path* yet; true once."""
        is_news = path.name not in self._named
        self._named.add(path.name)
        return is_news


def _is_empty(entry: os.DirEntry[str]) -> bool:
    try:
        is_file = entry.is_file(follow_symlinks=False)
        return is_file and entry.stat(follow_symlinks=False).st_size == 0
    except OSError:  # gone, or a bad block: whoever reads it says so
        return False
