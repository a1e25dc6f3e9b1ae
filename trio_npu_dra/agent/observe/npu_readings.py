"""The NPUs' telemetry, read when a scrape asks, but not too often, and never for long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.telemetry import Telemetry, read_telemetry
from trio_npu_dra.kit.base.observable import Observable

INTERVAL_SECONDS: Final = 5.0
"""Between two readings of an NPU, however many clients scrape."""

_DEADLINE_SECONDS: Final = 3.0  # for all NPUs: a scrape waits ten seconds if not told otherwise


class NpuReadings:
    """The latest telemetry of each NPU; without a library there is none."""

    def __init__(self, worker: DcmiWorker, dcmi: Dcmi | None, board: Observable[Board]) -> None:
        self._worker = worker
        self._dcmi = dcmi
        self._board = board
        self._readings: dict[str, tuple[float, Telemetry]] = {}  # with the time of asking
        self._asking = trio.Lock()

    async def refresh(self) -> None:
        """Read NPUs whose values are old; after a deadline, leave the rest."""
        if self._dcmi is None:
            return
        with trio.move_on_after(_DEADLINE_SECONDS):
            async with self._asking:
                for chip in self._board.value.chips:
                    if not chip.is_listed or chip.name in self.fresh():
                        continue
                    self._readings.pop(chip.name, None)
                    asked_at = trio.current_time()
                    try:
                        telemetry = await read_telemetry(self._worker, self._dcmi, chip)
                    except DcmiError:
                        continue  # the worker's log and the health metrics show this
                    self._readings[chip.name] = asked_at, telemetry

    def fresh(self) -> Mapping[str, Telemetry]:
        """Values by the chip's name, without those that are old."""
        oldest = trio.current_time() - INTERVAL_SECONDS
        return {name: telemetry for name, (at, telemetry) in self._readings.items() if at > oldest}
