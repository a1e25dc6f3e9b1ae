"""Fault events on their way from the library's thread into trio."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from trio_npu_dra.ascend.dcmi.types import FaultEvent

CAPACITY: Final = 4096
"""Events kept while the watcher is busy, whatever they tell."""

CODES: Final = 1024
EVENTS_OF_CODE: Final = 16
"""Beyond that the last events are kept of so many codes of chips: no rule counts more than a few
occurrences of one. Others are lost: their chips are read, but how often they came is not known."""


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
        self._last_of: dict[tuple[int, int], deque[FaultEvent]] = {}  # by chip and code
        self._lost = 0

    def put(self, event: FaultEvent) -> None:
        """Take an event, from any thread; never raises, even if trio has ended."""
        with self._lock:
            if len(self._events) < CAPACITY:
                self._events.append(event)
            elif not self._keep_last(event):
                self._lost += 1
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake, idempotent=True)

    def take(self) -> tuple[list[FaultEvent], int]:
        """The events since the last call, each code's in order, and how many others were lost."""
        with self._lock:
            events = self._events
            for last in self._last_of.values():
                events += last
            lost, self._lost = self._lost, 0
            self._events, self._last_of = [], {}
        return events, lost

    def _keep_last(self, event: FaultEvent) -> bool:
        """Keep an event for which there is no room among all; say whether none is lost by it."""
        key = event.logic_id, event.code
        if key not in self._last_of and len(self._last_of) == CODES:
            return False
        last = self._last_of.setdefault(key, deque(maxlen=EVENTS_OF_CODE))
        is_full = len(last) == EVENTS_OF_CODE
        last.append(event)
        return not is_full
