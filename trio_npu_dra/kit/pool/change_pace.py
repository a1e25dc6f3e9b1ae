"""How fast changes of a pool are written: the first ones at once, in a storm a few a second.

Every watcher of ResourceSlices gets each write; skipped pools were outdated anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 10
PER_SECOND: Final = 5.0
"""Both are the defaults of client-go (burst and QPS)."""


class ChangePace:
    """Delays before changes: a bucket of `AT_ONCE` tokens that fills at `PER_SECOND`.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._full_at = clock()

    def delay(self) -> float:
        """Seconds to wait before the change that is due."""
        return max(0.0, self._full_at - self._clock() - (AT_ONCE - 1) / PER_SECOND)

    def note_change(self) -> None:
        """Note that a change was written now."""
        self._full_at = max(self._full_at, self._clock()) + 1 / PER_SECOND
