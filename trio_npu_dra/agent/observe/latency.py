"""How long a fault takes to be published: from the event to the accepted pool."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from trio_npu_dra.ascend.model import EMPTY_BOARD, Board


@dataclass(frozen=True, slots=True)
class EventPublished:
    """A fault event led to another pool, which the API server has accepted."""

    seconds: float  # since the event arrived


class EventLatency:
    """Measures from the oldest event that is not published yet.

    *clock* is the clock of `FaultEvent.heard_at`.
    """

    def __init__(
        self,
        on_event: Callable[[EventPublished], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_event = on_event
        self._clock = clock
        self._heard_at: float | None = None
        self._board = EMPTY_BOARD

    def pool_made(self, board: Board, *, is_late: bool) -> None:
        """Note that a pool was made of a Board, perhaps again because something else changed.

        *is_late* says whether the API server has another pool.
        """
        is_another, self._board = board is not self._board, board
        if is_late and is_another and self._heard_at is None:
            self._heard_at = board.heard_at

    def pool_accepted(self) -> None:
        """Note that the API server has the newest pool."""
        if self._heard_at is not None:
            self._on_event(EventPublished(self._clock() - self._heard_at))
        self._heard_at = None
