"""The faults of all chips of the node, and the file that carries them over a restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import trio
from pydantic import BaseModel, ConfigDict

from trio_npu_dra import storage
from trio_npu_dra.errors import StorageError
from trio_npu_dra.npu.chip_faults import ChipFaults, CodeMemory
from trio_npu_dra.npu.faults import FaultTable, packaged_table
from trio_npu_dra.npu.model import Npu

log = logging.getLogger(__name__)

_FILE_NAME: Final = "faults.json"

SAVE_SECONDS: Final = 1.0
"""At least between two writes: a storm of faults must not become one of writes."""


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    chips: dict[str, dict[str, CodeMemory]]


class NodeFaults:
    """The faults of the node's chips, by chip: a card that was replaced starts anew.

    Args:
        folder: Where the file is; None keeps nothing over a restart.
        table: Levels and rules.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        table: FaultTable | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.now = clock
        self._path = folder / _FILE_NAME if folder is not None else None
        self._table = table or packaged_table()
        self._chips: dict[str, ChipFaults] = {}
        self._saved: dict[str, dict[int, CodeMemory]] = {}
        self._released = trio.Event()
        self._failure = ""
        if self._path is not None:
            self._load(self._path)

    def of(self, npu: Npu) -> ChipFaults:
        """The faults of one chip."""
        return self._chips.setdefault(_key(npu), ChipFaults(self._table))

    def release(self, npu: Npu) -> bool:
        """Take back what frequency rules did to a chip; the watcher tells everybody.

        Returns:
            Whether there was something to take back.
        """
        if not self.of(npu).release(self.now()):
            return False
        self._released.set()
        return True

    async def wait_released(self) -> None:
        """Return when a chip was released."""
        await self._released.wait()
        self._released = trio.Event()

    @property
    def is_saved(self) -> bool:
        """Whether the file says what is known."""
        return self._path is None or self._memories() == self._saved

    def save(self) -> None:
        """Write the file if it says something else; a disk that fails is tried again later."""
        if self.is_saved or self._path is None:
            return
        memories = self._memories()
        file = _File(chips={key: _in_hex(codes) for key, codes in memories.items()})
        data = file.model_dump_json(exclude_defaults=True).encode() + b"\n"
        try:
            storage.remove_unfinished(self._path.parent, f"{_FILE_NAME}.")
            storage.write_atomic(self._path, data)
        except StorageError as error:
            if str(error) != self._failure:
                log.error("faults are not remembered", extra={"error": str(error)})
            self._failure = str(error)
            return
        self._failure, self._saved = "", memories

    def _memories(self) -> dict[str, dict[int, CodeMemory]]:
        return {key: dict(chip.memory) for key, chip in self._chips.items() if chip.memory}

    def _load(self, path: Path) -> None:
        """Read the file; NPUs must be served without one that cannot be read."""
        try:
            data = storage.read_bytes(path)
            if data is None:
                return
            file = _File.model_validate_json(data)
            memories = {key: _by_code(codes) for key, codes in file.chips.items()}
        except (StorageError, ValueError) as error:
            log.error(
                "what was known of faults cannot be read: separated NPUs are so no longer",
                extra={"file": str(path), "error": str(error)},
            )
            return
        self._saved = memories
        self._chips = {key: ChipFaults(self._table, codes) for key, codes in memories.items()}


def _key(npu: Npu) -> str:
    return npu.uuid or npu.name


def _in_hex(codes: Mapping[int, CodeMemory]) -> dict[str, CodeMemory]:
    return {f"{code:08X}": known for code, known in codes.items()}


def _by_code(codes: Mapping[str, CodeMemory]) -> dict[int, CodeMemory]:
    return {int(code, 16): known for code, known in codes.items()}
