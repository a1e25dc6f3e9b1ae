"""The ledger's folder: one file a holder.

A record that cannot be read, for whatever reason, is *set aside*: it stays as it is, costs its own
holder only, and is named once in the log. The holder's CDI file still guards its NPUs
(`handout.exclusion`), until its claim is prepared again or unprepared. Each start tries to read it,
such as that of a newer version. After a reboot it guards nothing and is removed, as other records
are.
"""

import logging
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from trio_npu_dra.agent.holds.encoding import parse
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.boot import BOOT_ID, read_boot_id
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)

CLAIMS = "claims"
"""The folder of the records, in the state folder."""

# UIDs have at most 128 letters, and a prefix of ours.
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,159})\.json", re.ASCII)


@dataclass(kw_only=True)
class Found:
    """The content of the folder.

    Attributes:
        entries: By UID.
        unreadable: Why the record of a holder cannot be read, by UID; its pods may still run.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


def _read_folder(folder: Path) -> Found:
    """Read all records in a folder; its other files are none of ours.

    Raises:
        StorageError: It is missing or cannot be read.
    """
    with storage.translated(f"read {folder}"):
        paths = sorted(folder.iterdir())
    found = Found()
    for path in paths:
        if (of := _NAME.fullmatch(path.name)) is None:
            continue
        try:
            content = storage.read_bytes(path)
            if content is not None:  # else it has just been removed
                found.entries[of[1]] = parse(content, uid=of[1])
        except StorageError as error:
            found.unreadable[of[1]] = str(error)
    return found


def read_records(state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> Found:
    """The records as a command reads them beside the daemon: without the lock or any change.

    The daemon may write meanwhile: each record is whole, but two of them may be of different
    moments. Those of an earlier boot are left out.

    Raises:
        StorageError: The folder is missing or cannot be read.
    """
    found = _read_folder(state_folder / CLAIMS)
    boot_id = read_boot_id(boot_id_file)
    if boot_id:
        current = {"", boot_id}
        found.entries = {u: one for u, one in found.entries.items() if one.boot_id in current}
    return found


def read_holds(state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> tuple[Hold, ...] | None:
    """The holds of all records; None if their folder is missing or cannot be read.

    A record that cannot be read is left out, with a line in the log.
    """
    try:
        records = read_records(state_folder, boot_id_file=boot_id_file)
    except StorageError as error:
        log.debug("the holders of NPUs are unknown", extra={"problem": str(error)})
        return None
    for uid, problem in records.unreadable.items():
        log.warning("a claim record cannot be read", extra={"uid": uid, "problem": problem})
    return tuple(hold for entry in records.entries.values() for hold in entry.holds)


def record_path(folder: Path, uid: str) -> Path:
    """The record of a holder; its UID is the API server's, or one that this driver made up."""
    return folder / f"{uid}.json"


def missing_records(folder: Path, found: Found) -> list[str]:
    """The holders without a file, by UID; one that cannot be read may be anything.

    Raises:
        StorageError: The folder cannot be read.
    """
    with storage.translated(f"read {folder}"), os.scandir(folder) as there:
        is_file = {entry.name: entry.is_file(follow_symlinks=False) for entry in there}
    return [
        *(uid for uid in found.entries if not is_file.get(f"{uid}.json")),
        *(uid for uid in found.unreadable if f"{uid}.json" not in is_file),
    ]


def read_at_start(folder: Path, boot_id: str, *, is_first_of_boot: bool) -> Found:
    """Read all records; those of an earlier boot are forgotten.

    They are *undoing* instead where a vNPU may have outlasted the reboot.

    Args:
        folder: The records.
        boot_id: The boot of the node. Empty when unknown: then no record is of another.
        is_first_of_boot: Whether nobody has written since the node booted: then what cannot be
            read is of an earlier boot.

    Raises:
        StorageError: The folder cannot be read.
    """
    storage.remove_unfinished(folder, "")
    _adopt(folder)
    found = _read_folder(folder)
    for uid, problem in list(found.unreadable.items()):
        path = record_path(folder, uid)
        if is_first_of_boot and _forget(path, uid):
            del found.unreadable[uid]
        else:
            log.error(
                "claim record cannot be read and is set aside; only its CDI file guards its "
                "NPUs now, or its name if it is of a pod",
                extra={"path": str(path), "problem": problem},
            )
    for uid, entry in list(found.entries.items()):
        if not boot_id or entry.boot_id in {"", boot_id}:
            continue
        if entry.outlasts_boot:
            found.entries[uid] = replace(entry, state=EntryState.UNDOING)
        else:
            del found.entries[uid]
            _forget(record_path(folder, uid), str(entry))
    return found


def _adopt(folder: Path) -> None:
    """Give records that 0.1.0 could not read their names again, and remove its other folders."""
    shutil.rmtree(folder.with_name("copies"), ignore_errors=True)
    shutil.rmtree(folder.with_name("statuses"), ignore_errors=True)
    for path in folder.glob("*.json.aside"):
        record = path.with_name(path.name.removesuffix(".aside"))
        with suppress(OSError):
            if os.path.lexists(record):  # its claim was prepared again
                path.unlink()
            else:
                path.rename(record)


def _forget(path: Path, claim: str) -> bool:
    """Remove a record of an earlier boot; whether that worked."""
    try:
        storage.remove(path)
    except StorageError as error:
        log.warning("claim record of an earlier boot stays: %s", error)
        return False
    log.info("claim record of an earlier boot forgotten", extra={"claim": claim, "uid": path.stem})
    return True
