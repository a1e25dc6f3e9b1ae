"""Who holds what, for somebody who only looks: nothing is locked, written, moved or removed.

The daemon may write meanwhile: each record is whole, but two of them may be of different moments.
"""

from __future__ import annotations

import logging
from pathlib import Path

from trio_npu_dra import storage
from trio_npu_dra.boot import BOOT_ID, read_boot_id
from trio_npu_dra.errors import StorageError
from trio_npu_dra.holds.encoding import parse
from trio_npu_dra.holds.hold import Hold
from trio_npu_dra.holds.ledger import CLAIMS

log = logging.getLogger(__name__)


def read_holds(state_folder: Path, *, boot_id_file: Path = BOOT_ID) -> tuple[Hold, ...] | None:
    """All holds that the records tell; None if their folder is missing or cannot be read.

    A record that cannot be read is left out, with a line in the log. One of an earlier boot holds
    nothing.

    Args:
        state_folder: That of the `Ledger`.
        boot_id_file: Tells the boot of the node.
    """
    try:
        with storage.translated("read the claim records"):
            paths = sorted((state_folder / CLAIMS).iterdir())
    except StorageError as error:
        log.debug("who holds the NPUs is not known", extra={"problem": str(error)})
        return None
    boot_id = read_boot_id(boot_id_file)
    holds: list[Hold] = []
    for path in paths:
        if path.suffix != ".json" or path.name.startswith("."):
            continue
        try:
            entry = parse(storage.read_bytes(path) or b"", uid=path.stem)
        except StorageError as error:
            log.warning("a claim record cannot be read", extra={"problem": str(error)})
            continue
        if not boot_id or entry.boot_id in {"", boot_id}:
            holds += entry.holds
    return tuple(holds)
