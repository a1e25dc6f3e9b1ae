"""How long a fault takes to be published: from the event to the accepted pool."""

from __future__ import annotations

import time
from collections.abc import Callable

from trio_npu_dra.ascend.model import EMPTY_BOARD, Board


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
        self._board = EMPTY_BOARD

    def pool_made(self, board: Board, *, is_late: bool) -> None:
        """A pool was made of a Board, or of the same one again, because something else changed.

        Args:
            board: It tells when the event arrived that changed it.
            is_late: Whether the API server has another pool.
        """
        is_another, self._board = board is not self._board, board
        if is_late and is_another and self._heard_at is None:
            self._heard_at = board.heard_at

    def pool_accepted(self) -> None:
        """The API server has the newest pool."""
        if self._heard_at is not None:
            self._observe(self._clock() - self._heard_at)
        self._heard_at = None
