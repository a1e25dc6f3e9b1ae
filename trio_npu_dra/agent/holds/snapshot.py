"""The records as a command reads them beside the daemon: without the lock, and without any change.

The daemon may write meanwhile: each record is whole, but two of them may be of different moments.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trio_npu_dra.agent.holds.encoding import parse
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.agent.holds.files import named
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.agent.holds.ledger import CLAIMS
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.boot import BOOT_ID, read_boot_id
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records of this boot.

    Attributes:
        entries: By UID.
        unreadable: Why others cannot be read, by UID; empty for one that was set aside.
    """

    entries: Mapping[str, Entry]
    unreadable: Mapping[str, str]


def read_records(state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> Records:
    """Read all records of a `Ledger`'s state folder.

    Raises:
        StorageError: The folder is missing or cannot be read.
    """
    with storage.translated("read the claim records"):
        names = sorted(path.name for path in (state_folder / CLAIMS).iterdir())
    boot_id = read_boot_id(boot_id_file)
    entries: dict[str, Entry] = {}
    unreadable: dict[str, str] = {}
    for uid, is_aside in filter(None, map(named, names)):  # a record before one set aside for it
        if is_aside:
            unreadable.setdefault(uid, "")
            continue
        try:
            content = storage.read_bytes(state_folder / CLAIMS / f"{uid}.json") or b""
            entry = parse(content, uid=uid)
        except StorageError as error:
            unreadable[uid] = str(error)
        else:
            if not boot_id or entry.boot_id in {"", boot_id}:
                entries[uid] = entry
    return Records(
        entries=entries,
        unreadable={uid: why for uid, why in unreadable.items() if uid not in entries},
    )


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
