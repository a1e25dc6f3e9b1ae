"""The records as a command reads them beside the daemon: without the lock, and without any change.

The daemon may write meanwhile: each record is whole, but two of them may be of different moments.
"""

from __future__ import annotations

import logging
from pathlib import Path

from trio_npu_dra.agent.holds.files import Found, read_folder
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.agent.holds.ledger import CLAIMS
from trio_npu_dra.kit.base.boot import BOOT_ID, read_boot_id
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)


def read_records(state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> Found:
    """Read all records of a `Ledger`'s state folder, without those of an earlier boot.

    Raises:
        StorageError: The folder is missing or cannot be read.
    """
    found = read_folder(state_folder / CLAIMS)
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
