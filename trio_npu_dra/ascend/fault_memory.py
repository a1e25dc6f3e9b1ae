"""The faults of all chips of the node, remembered over a restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import trio

from trio_npu_dra.ascend import port_faults
from trio_npu_dra.ascend.chip_faults import ChipFaults
from trio_npu_dra.ascend.fault_file import FaultFile, FaultHistory
from trio_npu_dra.ascend.faults import packaged_table
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.kit.base.boot import Boot
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)

SAVE_SECONDS: Final = 1.0
"""At least between two writes: a storm of faults must not become one of writes."""


class NodeFaults:
    """The faults of the node's chips: a card that replaces another one has none of its faults.

    Chips are known by die id; one without it is taken for the last chip seen under the same name.

    Args:
        folder: Where the file is; None keeps nothing over a restart.
        clock: Seconds since 1970.
        boot: This boot of the node by that clock, by which the file's times move along when
            the clock is set. None takes them as they are.
        settle_seconds: How long a fault must last before it may evict pods.

    Attributes:
        on_release: Called when a chip was released.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        clock: Callable[[], float] = time.time,
        boot: Boot | None = None,
        settle_seconds: float = 0.0,
    ) -> None:
        self.now = clock
        self._new = partial(ChipFaults, packaged_table(), settle_seconds=settle_seconds)
        self._file = FaultFile(folder, boot) if folder is not None else None
        self.on_release: Callable[[], object] = lambda: None
        self._failure = ""
        self.load()

    def load(self) -> None:
        """Begin with what the file says."""
        self._saved = self._file.load() if self._file is not None else FaultHistory()
        self._chips = {key: self._new(codes) for key, codes in self._saved.chips.items()}
        self._places = dict(self._saved.places)

    def of(self, chip: Chip) -> ChipFaults:
        """The faults of one chip."""
        return self._chips.setdefault(self._key(chip), self._new())

    def judge(self, board: Board) -> Board:
        """The Board with the health of its chips; one that says that it does not exist is gone."""
        now = self.now()
        known = {chip.name: self.of(chip) for chip in board.chips}
        chips = tuple(
            replace(
                chip,
                gone=chip.gone or known[chip.name].is_gone,
                health=known[chip.name].health(now),
            )
            for chip in board.chips
        )
        before = {name: its.derived(port_faults.UB_PORT_DOWN) for name, its in known.items()}
        after = port_faults.with_ub_faults(replace(board, chips=chips), before, now)
        for chip in after.chips:
            known[chip.name].derive(port_faults.UB_PORT_DOWN, port_faults.ub_code(chip))
        return after

    def release(self, chip: Chip) -> bool:
        """Undo what frequency rules did to a chip; return whether any had applied."""
        if not self.of(chip).release(self.now()):
            return False
        self.on_release()
        return True

    @property
    def is_saved(self) -> bool:
        """Whether the file is up to date."""
        return self._file is None or self._known() == self._saved

    def save(self) -> None:
        """Write the file if it is out of date; if the disk fails, a later call tries again."""
        if self._file is not None and not self.is_saved:
            known = self._known()
            with self._failure_logged():
                self._file.write(known)
                self._saved = known

    async def save_apart(self) -> None:
        """Save from a thread: a slow disk must not delay what the Board says."""
        if self._file is not None and not self.is_saved:
            known = self._known()
            with self._failure_logged():
                await trio.to_thread.run_sync(self._file.write, known)
                self._saved = known

    @contextmanager
    def _failure_logged(self) -> Iterator[None]:
        """Log why the disk fails, once for each reason in a row."""
        try:
            yield
            self._failure = ""
        except StorageError as error:
            if str(error) != self._failure:
                log.error("faults are not remembered", extra={"error": str(error)})
            self._failure = str(error)

    def _key(self, chip: Chip) -> str:
        uuid = chip.uuid
        if uuid is None:
            return self._places.get(chip.name, chip.name)
        if self._places.get(chip.name) != uuid:
            self._places = {name: key for name, key in self._places.items() if key != uuid}
            self._places[chip.name] = uuid
            if uuid not in self._chips and chip.name in self._chips:
                self._chips[uuid] = self._chips.pop(chip.name)  # its die id is known only now
        return uuid

    def _known(self) -> FaultHistory:
        chips = {key: dict(chip.memory) for key, chip in self._chips.items() if chip.memory}
        places = {name: key for name, key in self._places.items() if key in chips}
        return FaultHistory(chips=chips, places=places)
