"""Fault events on their way from the library's thread into trio."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import trio

from trio_npu_dra.npu.faults import Severity

CAPACITY: Final = 4096
"""Events kept while the watcher is busy.

All chips are read again after a loss, but how often a lost fault came is not counted.
"""


class Assertion(IntEnum):
    """What an event says of its fault (DCMI reference)."""

    RECOVERY = 0
    OCCURRENCE = 1
    NOTICE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """What the library tells of a fault.

    Attributes:
        logic_id: The chip, as the driver numbers chips.
        code: The fault code.
        severity: How severe the driver thinks it is; None for a number that we do not know.
        assertion: Whether the fault came or went; None for a number that we do not know.
        raised_at: When the fault came, also in a recovery, in seconds since 1970.
        heard_at: When we were told, on the clock of `time.monotonic`.
    """

    logic_id: int
    code: int
    severity: Severity | None
    assertion: Assertion | None
    raised_at: float
    heard_at: float = field(default_factory=time.monotonic, compare=False)


class EventInbox:
    """Events for one task of the trio run in which this was made.

    Args:
        wake: Called in that run, soon after an event was put.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._token = trio.lowlevel.current_trio_token()
        self._events: deque[FaultEvent] = deque()
        self._lost = 0  # grows on the library's thread only
        self._told_lost = 0

    def put(self, event: FaultEvent) -> None:
        """Take an event, from any thread; never raises, also not when trio has ended."""
        if len(self._events) < CAPACITY:
            self._events.append(event)
        else:
            self._lost += 1
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake, idempotent=True)

    def take(self) -> tuple[list[FaultEvent], int]:
        """The events since the last time, and how many more there were than were kept."""
        events = [self._events.popleft() for _ in range(len(self._events))]
        lost = self._lost - self._told_lost
        self._told_lost += lost
        return events, lost
