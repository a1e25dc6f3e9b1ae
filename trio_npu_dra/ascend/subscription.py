"""Has the Ascend driver tell of faults, and asks it again where it refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import trio

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import FaultEvent
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.fault_events import EventInbox
from trio_npu_dra.kit.base.errors import DcmiError
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

_REFUSED_INTERVALS: Final = 60  # until a refused subscription is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """How the watcher learns of faults, for people and metrics.

    Attributes:
        subscribed: Whether the Ascend driver sends events; if not, chips are read in turn.
        refusal: Why it sends none; empty if it does, or has not answered yet. The watcher tries
            again in time.
        lost: How many events were lost because the watcher was busy.
    """

    subscribed: bool = False
    refusal: str = ""
    lost: int = 0

    @property
    def answered(self) -> bool:
        """Whether the Ascend driver accepted or refused; all chips were read before."""
        return self.subscribed or bool(self.refusal)


class Subscription:
    """The one subscription of the process to fault events.

    Args:
        worker: Runs the call.
        dcmi: The library, initialised when `ask` is called.
        status: Kept up to date.
        interval_seconds: Pause between two readings of a chip without events; a refused
            subscription is tried again after sixty of them.
        wake: Called soon after an event came.
        on_start: Called when events come from now on.
    """

    def __init__(
        self,
        worker: DcmiWorker,
        dcmi: Dcmi,
        *,
        status: Observable[WatchStatus],
        interval_seconds: float,
        wake: Callable[[], object],
        on_start: Callable[[], object],
    ) -> None:
        self._worker = worker
        self._dcmi = dcmi
        self._status = status
        self._interval = interval_seconds
        self._on_start = on_start
        self._inbox = EventInbox(wake)

    @property
    def is_active(self) -> bool:
        """Whether events come."""
        return self._status.value.subscribed

    async def ask(self) -> None:
        """Subscribe; an answer that comes after the deadline counts too."""
        try:
            await self._worker.call(
                self._dcmi.subscribe, self._inbox.put, on_late=lambda _: self._start()
            )
        except DcmiError as error:
            if self.is_active:  # the answer to an earlier call came meanwhile
                return
            if self._status.set(replace(self._status.value, refusal=str(error))):
                log.warning(
                    "the Ascend driver does not tell of faults, chips are read in turn instead",
                    extra={"interval_s": self._interval, "error": str(error)},
                )
            return
        self._start()

    async def keep_asking(self) -> None:
        """Subscribe again now and then until it works: the Ascend driver may have been busy."""
        while True:
            await trio.sleep(_REFUSED_INTERVALS * self._interval)
            if self.is_active:  # also by an answer that came late
                return
            await self.ask()

    def take(self) -> tuple[list[FaultEvent], int]:
        """The events since the last call, and how many others were lost; a loss is logged."""
        events, lost = self._inbox.take()
        if lost:
            log.warning(
                "fault events lost: every chip is read, but faults may have come more often than "
                "was counted",
                extra={"lost": lost},
            )
            status = self._status.value
            self._status.set(replace(status, lost=status.lost + lost))
        return events, lost

    def _start(self) -> None:
        self._status.set(replace(self._status.value, subscribed=True, refusal=""))
        self._on_start()
