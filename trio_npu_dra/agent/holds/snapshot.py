"""Who holds what, for somebody who only looks: nothing is locked, written, moved or removed.

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
    """What the folder of records says.

    Attributes:
        entries: Those of this boot, by UID.
        unreadable: Why others cannot be read, by UID; empty for one that was set aside.
    """

    entries: Mapping[str, Entry]
    unreadable: Mapping[str, str]


def read_records(state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> Records:
    """All records.

    Args:
        state_folder: That of the `Ledger`.
        boot_id_file: Tells the boot of the node; records of an earlier one count for nothing.

    Raises:
        StorageError: The folder is missing or cannot be read.
    """
    with storage.translated("read the claim records"):
        names = sorted(path.name for path in (state_folder / CLAIMS).iterdir())
    boot_id = read_boot_id(boot_id_file)
    entries: dict[str, Entry] = {}
    unreadable: dict[str, str] = {}
    for name in names:
        known = named(name)
        if known is None:
            continue
        uid, is_aside = known
        if is_aside:
            unreadable.setdefault(uid, "")
            continue
        try:
            content = storage.read_bytes(state_folder / CLAIMS / name) or b""
            entry = parse(content, uid=uid)
        except StorageError as error:
            unreadable[uid] = str(error)
            continue
        if not boot_id or entry.boot_id in {"", boot_id}:
            entries[uid] = entry
    return Records(
        entries=entries,
        unreadable={uid: why for uid, why in unreadable.items() if uid not in entries},
    )


def read_holds(state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> tuple[Hold, ...] | None:
    """All holds that the records tell; None if their folder is missing or cannot be read.

    A record that cannot be read is left out, with a line in the log.
    """
    try:
        records = read_records(state_folder, boot_id_file=boot_id_file)
    except StorageError as error:
        log.debug("who holds the NPUs is not known", extra={"problem": str(error)})
        return None
    for uid, problem in records.unreadable.items():
        log.warning("a claim record cannot be read", extra={"uid": uid, "problem": problem})
    return tuple(hold for entry in records.entries.values() for hold in entry.holds)
