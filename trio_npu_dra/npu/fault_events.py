"""Fault events on their way from the library's thread into trio."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from trio_npu_dra.npu.dcmi.types import FaultEvent

CAPACITY: Final = 4096
"""Events kept while the watcher is busy.

After a loss every chip is read again, but lost occurrences are not counted.
"""


class EventInbox:
    """Passes events to one task of the trio run in which the inbox was made.

    Args:
        wake: Called in that run, soon after an event was put.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._token = trio.lowlevel.current_trio_token()
        self._events: deque[FaultEvent] = deque()
        self._lost = 0  # grows on the library's thread only
        self._reported_lost = 0

    def put(self, event: FaultEvent) -> None:
        """Take an event, from any thread; never raises, even if trio has ended."""
        if len(self._events) < CAPACITY:
            self._events.append(event)
        else:
            self._lost += 1
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake, idempotent=True)

    def take(self) -> tuple[list[FaultEvent], int]:
        """The events since the last call, and how many others were lost."""
        events = [self._events.popleft() for _ in range(len(self._events))]
        lost = self._lost - self._reported_lost
        self._reported_lost += lost
        return events, lost
