"""How fast a driver writes what has changed, and how fast it repairs other people's edits.

Every watcher of ResourceSlices receives each write, and needs only the newest pool; so it is with
other objects that many watch.
"""

from __future__ import annotations

from math import inf
from typing import Final

import trio

from trio_npu_dra.kit.base.backoff import Backoff

AT_ONCE: Final = 10
PER_SECOND: Final = 5.0
"""Both are the defaults of client-go (burst and QPS)."""

REPAIR_LIMIT: Final = 60.0
"""Seconds between repairs, at most."""
_FREE_REPAIRS: Final = 2
_PEACE: Final = 2 * REPAIR_LIMIT
_BACKOFF: Final = Backoff(first=1.0, limit=REPAIR_LIMIT)


class ChangePace:
    """Delays before changes: a bucket of `AT_ONCE` tokens that fills at `PER_SECOND`."""

    def __init__(self) -> None:
        self._full_at = -inf

    def delay(self) -> float:
        """Seconds to wait before the change that is due."""
        return max(0.0, self._full_at - trio.current_time() - (AT_ONCE - 1) / PER_SECOND)

    def note_change(self) -> None:
        """Note that a change was written now."""
        self._full_at = max(self._full_at, trio.current_time()) + 1 / PER_SECOND


class RepairPace:
    """Delays before repairs: none for the first two, then doubled while the edits go on."""

    def __init__(self) -> None:
        self._count = 0
        self._last = -inf

    def delay(self) -> float:
        """Seconds to wait before the repair that is due."""
        if trio.current_time() - self._last > _PEACE:
            self._count = 0
        if self._count < _FREE_REPAIRS:
            return 0.0
        return _BACKOFF.pause(self._count - _FREE_REPAIRS + 1)

    def note_repair(self) -> None:
        """Note that a repair was made now."""
        self._last = trio.current_time()
        self._count += 1
