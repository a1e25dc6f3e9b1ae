"""Fault events: the one subscription to them, and their way from the library's thread into trio."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import trio

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.types import FaultEvent
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

CAPACITY: Final = 4096
"""Events kept while trio is busy. Others are lost: all chips are read, but no rule counts them."""

_REFUSED_INTERVALS: Final = 60  # until a refused subscription is tried again


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """How the watcher learns of faults, for people and metrics.

    Attributes:
        subscribed: Whether the Ascend driver sends events; if not, chips are read in turn.
        refusal: Why it sends none; empty if it does, or has not answered yet. The watcher tries
            again in time.
        lost: How many events were lost because the daemon was busy.
    """

    subscribed: bool = False
    refusal: str = ""
    lost: int = 0

    @property
    def answered(self) -> bool:
        """Whether the Ascend driver accepted or refused; all chips were read before."""
        return self.subscribed or bool(self.refusal)


class EventInbox:
    """Passes events to one task of the trio run in which the inbox was made.

    Args:
        wake: Called in that run, soon after an event was put.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._events: list[FaultEvent] = []
        self._lost = 0

    def put(self, event: FaultEvent) -> None:
        """Take an event, from any thread; never raises, even if trio has ended."""
        with self._lock:
            if len(self._events) < CAPACITY:
                self._events.append(event)
            else:
                self._lost += 1
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake, idempotent=True)

    def take(self) -> tuple[list[FaultEvent], int]:
        """The events since the last call, in order, and how many others were lost."""
        with self._lock:
            taken = self._events, self._lost
            self._events, self._lost = [], 0
        return taken


@dataclass(eq=False, kw_only=True)
class Subscription:
    """The one subscription of the process to fault events; it keeps *status* up to date.

    Attributes:
        interval_seconds: Pause between two readings of a chip while no events come; a refused
            subscription is tried again after sixty of them.
        wake: Called soon after an event came.
        on_start: Called when events come from now on.
    """

    worker: DcmiWorker
    dcmi: Dcmi
    status: Observable[WatchStatus]
    interval_seconds: float
    wake: Callable[[], object]
    on_start: Callable[[], object]

    def __post_init__(self) -> None:
        self._inbox = EventInbox(self.wake)

    @property
    def is_active(self) -> bool:
        """Whether events come."""
        return self.status.value.subscribed

    async def ask(self) -> None:
        """Subscribe; an answer that comes after the deadline counts too."""
        try:
            await self.worker.call(
                self.dcmi.subscribe, self._inbox.put, on_late=lambda _: self._start()
            )
        except DcmiError as error:
            if self.is_active:  # the answer to an earlier call came meanwhile
                return
            if self.status.set(replace(self.status.value, refusal=str(error))):
                log.warning(
                    "the Ascend driver sends no fault events, chips are read in turn instead",
                    extra={"interval_s": self.interval_seconds, "error": str(error)},
                )
            return
        self._start()

    async def keep_asking(self) -> None:
        """Subscribe again now and then until it works: the Ascend driver may have been busy."""
        while True:
            await trio.sleep(_REFUSED_INTERVALS * self.interval_seconds)
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
            status = self.status.value
            self.status.set(replace(status, lost=status.lost + lost))
        return events, lost

    def _start(self) -> None:
        self.status.set(replace(self.status.value, subscribed=True, refusal=""))
        self.on_start()
