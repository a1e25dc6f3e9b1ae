"""The faults of all chips of the node, remembered over a restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

from trio_npu_dra.ascend.chip_faults import ChipFaults
from trio_npu_dra.ascend.fault_file import FaultFile, Known
from trio_npu_dra.ascend.faults import packaged_table
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.kit.base.boot import Boot
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)

SAVE_SECONDS: Final = 1.0
"""At least between two writes: a storm of faults must not become one of writes."""


class NodeFaults:
    """The faults of the node's chips, by chip: a card that was replaced starts anew.

    Chips are known by die id; one without it is taken for the last chip seen under the same name.

    Args:
        folder: Where the file is; None keeps nothing over a restart.
        clock: Seconds since 1970.
        boot: This boot of the node by that clock: what the file says of a time before the clock was
            set moves along. None takes the file's times as they are.
        settle_seconds: How long a fault must last before it may evict pods.
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
        self._saved = self._file.load() if self._file is not None else Known()
        self._chips = {key: self._new(codes) for key, codes in self._saved.chips.items()}
        self._places = dict(self._saved.places)
        self._releases = {key: at for key, at in self._saved.released.items() if at <= clock()}
        self._released = trio.Event()
        self._failure = ""

    def of(self, chip: Chip) -> ChipFaults:
        """The faults of one chip."""
        return self._chips.setdefault(self._key(chip), self._new())

    def release(self, chip: Chip) -> bool:
        """Take back what frequency rules did to a chip; the watcher tells everybody.

        Returns:
            Whether there was something to take back.
        """
        now = self.now()
        if not self.of(chip).release(now):
            return False
        self._releases[self._key(chip)] = now
        self._released.set()
        return True

    async def wait_released(self) -> None:
        """Return when a chip was released, here or by another instance."""
        await self._released.wait()
        self._released = trio.Event()

    @property
    def is_saved(self) -> bool:
        """Whether the file says what is known."""
        return self._file is None or self._known() == self._saved

    def save(self) -> None:
        """Write the file if there is news for it; a disk that fails is tried again later."""
        if self._file is not None and not self.is_saved:
            ours = self._known()
            self._take_saved(ours, _exchanged(self._file, ours, self._saved, self.now()))

    async def save_apart(self) -> None:
        """The same from a thread: a slow disk keeps nobody from hearing of the fault."""
        if self._file is not None and not self.is_saved:
            ours = self._known()
            exchange = partial(_exchanged, self._file, ours, self._saved, self.now())
            self._take_saved(ours, await trio.to_thread.run_sync(exchange))

    def _take_saved(self, ours: Known, written: Known | StorageError) -> None:
        if isinstance(written, StorageError):
            if str(written) != self._failure:
                log.error("faults are not remembered", extra={"error": str(written)})
            self._failure = str(written)
            return
        self._failure = ""
        self._saved = ours
        for key, at in written.released.items():
            if at > self._releases.get(key, 0.0):
                self._releases[key] = at
                self._adopt_release(key, at)

    def _adopt_release(self, key: str, at: float) -> None:
        """Release a chip that another instance has released, unless rules spoke again since."""
        chip = self._chips.get(key)
        separated = [known.separated for known in chip.memory.values()] if chip else []
        if chip is not None and all(since is None or since <= at for since in separated):
            chip.release(self.now())
            self._released.set()

    def _key(self, chip: Chip) -> str:
        uuid = chip.uuid
        if uuid is None:
            return self._places.get(chip.name, chip.name)
        if self._places.get(chip.name) != uuid:
            self._places = {name: key for name, key in self._places.items() if key != uuid}
            self._places[chip.name] = uuid
            if uuid not in self._chips and chip.name in self._chips:
                self._chips[uuid] = self._chips.pop(chip.name)  # it tells only now who it is
        return uuid

    def _known(self) -> Known:
        chips = {key: dict(chip.memory) for key, chip in self._chips.items() if chip.memory}
        places = {name: key for name, key in self._places.items() if key in chips}
        return Known(chips=chips, places=places, released=dict(self._releases))


def _exchanged(file: FaultFile, ours: Known, base: Known, now: float) -> Known | StorageError:
    try:
        return file.exchange(ours, base, now=now)
    except StorageError as error:
        return error
