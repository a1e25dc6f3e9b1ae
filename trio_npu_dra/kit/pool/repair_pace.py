"""How fast repairs follow one another: the first two at once, then ever more slowly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trio_npu_dra.kit.base.backoff import Backoff

REPAIR_LIMIT: Final = 60.0
"""Seconds between repairs, at most."""
_AT_ONCE: Final = 2
_PEACE: Final = 2 * REPAIR_LIMIT
_BACKOFF: Final = Backoff(first=1.0, limit=REPAIR_LIMIT)


class RepairPace:
    """Delays before repairs, which double while someone keeps editing our slices.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0
        self._last = 0.0

    def delay(self) -> float:
        """Seconds to wait before the repair that is due."""
        if self._clock() - self._last > _PEACE:
            self._count = 0
        return _BACKOFF.pause(self._count - _AT_ONCE + 1) if self._count >= _AT_ONCE else 0.0

    def note_repair(self) -> None:
        """Note that a repair was made now."""
        self._last = self._clock()
        self._count += 1
