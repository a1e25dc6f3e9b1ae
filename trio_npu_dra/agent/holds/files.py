"""The ledger's folder: one file a holder, also where files cannot be read.

A record that cannot be read costs its own holder only. A broken one is set aside under a name that
each start reads again, and so is a foreign file under a record's name (`storage`). A record that is
empty, or cannot be read because of an I/O error, stays in place. In each case its holder is
*unreadable*: it keeps its CDI file, and that file still guards its NPUs (`handout.exclusion`).
After a reboot it guards nothing and is removed, as other records are, unless it names a vNPU.

A vNPU that was cut for a holder has to be removed, so its record must not be lost: it is there
twice. The copy is written before the record, in a folder of its own, and is used where the record
cannot be read. A copy without a record belongs to a holder that is gone.
"""

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

    None for a name that no record has: UIDs have at most 128 letters, and a prefix of ours.
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], found[2] is not None)


@dataclass(kw_only=True)
class Found:
    """The content of the folder.

    Attributes:
        entries: By UID.
        unreadable: UIDs of holders whose record cannot be read; their pods may still run.
        withheld: Those of *unreadable* whose record gave an I/O error: it may be read later.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    withheld: set[str] = field(default_factory=set)


class EntryFiles:
    """The records in one folder.

    Args:
        folder: Its path.
        boot_id: The boot of the node; records of another boot are forgotten, or *undoing* where a
            vNPU may have outlasted the reboot. Empty when unknown: then no record is of another.
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
        """Make the folder, or restore its mode and owner; whether it was missing.

        Raises:
            StorageError: It cannot be made, or something else has its name.
        """
        return storage.make_folder(self._folder, mode=_FOLDER_MODE)

    def write(self, uid: str, data: bytes, *, is_twice: bool) -> None:
        """Replace the record of a holder, in one rename; before it, write or remove its copy.

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
            storage.remove(self._copy(uid))  # it has the holder's earlier devices
        storage.write_atomic(path, data, sync=is_twice or not self._boot_id)

    def remove(self, uid: str) -> None:
        """Remove the record of a holder, its copy, and a record of it that was set aside.

        Raises:
            StorageError: A file cannot be removed.
        """
        storage.remove(self._path(uid))
        storage.remove(self._aside(uid))
        storage.remove(self._copy(uid))

    def sync(self) -> None:
        """Make names durable: a power cut then neither loses records nor brings them back.

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
        """The holders without a file, by UID.

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
        with storage.translated(f"read {self._folder}"):
            # A record comes before the file that was set aside for it.
            names = sorted(path.name for path in self._folder.iterdir())
        found = Found()
        self._is_first_of_boot, self._said = is_first_of_boot, 0
        for name in names:
            path, known = self._folder / name, named(name)
            if known is not None:
                self._read_file(path, *known, found)
            elif storage.is_unfinished(name):
                storage.remove_if_abandoned(path)
            elif not storage.is_set_aside(name) and self._is_news(path):
                log.warning("something foreign among the claim records", extra={"path": str(path)})
        self._remove_lone_copies({*found.entries, *found.unreadable})
        if self._said > _MOST_LINES:
            log.error("%d more claim records cannot be read", self._said - _MOST_LINES)
        return found

    def _remove_lone_copies(self, uids: Container[str]) -> None:
        """Remove copies of other holders, and unfinished files of killed writers, if possible."""
        try:
            copies = list(self._copies.iterdir())
        except OSError:  # there are none yet
            return
        for path in copies:
            with suppress(StorageError):
                if storage.is_unfinished(path.name):
                    storage.remove_if_abandoned(path)
                elif path.name.removesuffix(_SUFFIX) not in uids:
                    storage.remove(path)

    def _read_file(self, path: Path, uid: str, is_aside: bool, found: Found) -> None:
        """Read a record, or one that was set aside: a newer version may be back, or a person."""
        if uid in found.entries:
            return  # its claim was prepared again after this was set aside
        content = b""
        try:
            content = storage.read_bytes(path) or b""
            entry = parse(content, uid=uid)
            if is_aside:
                storage.rename(path, self._path(uid))
        except StorageError as error:
            if not self._read_copy(path, uid, error, found):
                self._handle_unreadable(path, uid, content, error, found)
            return
        found.unreadable.discard(uid)
        self._accept(entry, self._path(uid), found)
        if is_aside:
            log.warning("claim record can be read again", extra={"claim": str(entry), "uid": uid})
        elif entry.outlasts_boot and not self._copy(uid).exists():  # somebody removed it
            with suppress(StorageError):
                self._write_copy(uid, content)

    def _read_copy(self, path: Path, uid: str, error: StorageError, found: Found) -> bool:
        """Take a record that cannot be read from its copy, if there is one, and write it again."""
        try:
            content = storage.read_bytes(self._copy(uid)) or b""
            entry = parse(content, uid=uid)
            if isinstance(error, ForeignFile):
                storage.set_aside(path)
            storage.write_atomic(self._path(uid), content)
        except StorageError:
            return False
        log.error(
            "claim record cannot be read and is written again from its copy",
            extra={"claim": str(entry), "path": str(path), "problem": str(error)},
        )
        self._accept(entry, self._path(uid), found)
        return True

    def _accept(self, entry: Entry, path: Path, found: Found) -> None:
        self._named.discard(path.name)
        if not self._boot_id or entry.boot_id in {"", self._boot_id}:
            found.entries[entry.uid] = entry
        elif entry.outlasts_boot:
            found.entries[entry.uid] = replace(entry, state=EntryState.UNDOING)
        elif _forget(path):
            log.info(
                "claim record of an earlier boot forgotten",
                extra={"claim": str(entry), "uid": entry.uid, "devices": entry.device_names},
            )

    def _handle_unreadable(
        self, path: Path, uid: str, content: bytes, error: StorageError, found: Found
    ) -> None:
        is_lasting = isinstance(error, ForeignFile | RecordCorrupt)
        if (
            is_lasting
            and self._is_first_of_boot
            and not _OF_VNPU.search(content)  # the vNPU may be there again
            and _forget(path)
        ):
            if self._is_worth_a_line():
                log.warning(
                    "claim record of an earlier boot, which could not be read, is forgotten",
                    extra={"path": str(path)},
                )
            return
        found.unreadable.add(uid)
        if path == self._path(uid) and not is_lasting:
            found.withheld.add(uid)
        if isinstance(error, RecordCorrupt) and not content:
            self._report_unreadable(path, error)  # it stays: nothing in it is worth keeping
        elif path == self._path(uid):
            if is_lasting:
                self._set_aside(path, uid, error)
            else:
                self._report_unreadable(path, error)

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
            self._log_guarded("claim record cannot be read and was set aside", aside, error)

    def _report_unreadable(self, path: Path, problem: object) -> None:
        if self._is_news(path):
            self._log_guarded("claim record cannot be read", path, problem)

    def _log_guarded(self, what: str, path: Path, problem: object) -> None:
        if self._is_worth_a_line():
            extra = {"path": str(path), "problem": str(problem)}
            log.error("%s; %s", what, _GUARDS, extra=extra)

    def _is_worth_a_line(self) -> bool:
        """Count a record that cannot be read; whether the log names it, which it does of a few."""
        self._said += 1
        return self._said <= _MOST_LINES

    def _is_news(self, path: Path) -> bool:
        """Whether the log has not named *path* yet; true once."""
        is_news = path.name not in self._named
        self._named.add(path.name)
        return is_news


def _forget(path: Path) -> bool:
    """Remove a record of an earlier boot; whether that worked."""
    try:
        storage.remove(path)
    except StorageError as error:
        log.warning("claim record of an earlier boot stays: %s", error)
        return False
    return True
