"""How long the world waits to hear of a fault: from the event to the accepted pool."""

from __future__ import annotations

import time
from collections.abc import Callable


class EventLatency:
    """Measures from the oldest event that is not published yet.

    Args:
        observe: Takes each duration in seconds.
        clock: That of `FaultEvent.heard_at`.
    """

    def __init__(
        self, observe: Callable[[float], object], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._observe = observe
        self._clock = clock
        self._heard_at: float | None = None

    def pool_changed(self, heard_at: float | None) -> None:
        """There is another pool to publish.

        Args:
            heard_at: When the event arrived that changed it; None when it was no event.
        """
        if self._heard_at is None:
            self._heard_at = heard_at

    def pool_accepted(self) -> None:
        """The API server has the newest pool."""
        if self._heard_at is not None:
            self._observe(self._clock() - self._heard_at)
        self._heard_at = None
