"""What the API server has of claims' statuses, in a file a claim: a restart need not ask for it.

The files are not synced. After a power cut the kubelet prepares each claim again, and a prepare
reads the claim.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from trio_npu_dra.agent.report.claim_status import Statuses
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)

_FOLDER: Final = "statuses"
_MODE: Final = 0o700
_SUFFIX: Final = ".json"
_STATUSES: Final = TypeAdapter(Statuses, config=ConfigDict(defer_build=True))


class StatusFiles:
    """The files of one node.

    Args:
        state_folder: The driver's folder on the node.
    """

    def __init__(self, state_folder: Path) -> None:
        self._folder = state_folder / _FOLDER

    def read(self, uid: str) -> Statuses | None:
        """The statuses of a claim, empty if the API server refused them; None without a file."""
        try:
            content = storage.read_bytes(self._path(uid))
            return None if content is None else _STATUSES.validate_json(content)
        except (StorageError, ValidationError):  # what is not known is written again
            return None

    def write(self, uid: str, statuses: Statuses) -> None:
        """Note the statuses of a claim.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        storage.make_folder(self._folder, mode=_MODE)
        content = json.dumps([status.to_wire() for status in statuses])
        storage.write_atomic(self._path(uid), content.encode(), sync=False)

    def keep(self, uids: Collection[str]) -> None:
        """Remove the files of all other claims, and unfinished files of killed writers."""
        try:
            storage.remove_unfinished(self._folder, "")
            for path in storage.paths_in(self._folder):
                if path.suffix == _SUFFIX and path.stem not in uids:
                    storage.remove(path)
        except StorageError as error:
            log.warning("files of ended claims stay: %s", error)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}{_SUFFIX}"
