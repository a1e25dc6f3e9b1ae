"""When each chip is read next."""

from __future__ import annotations

import math
from typing import Final

import trio

QUIET_INTERVALS: Final = 12
"""Between two readings of a chip that answers and that no event names."""

_REST_SECONDS: Final = 0.05  # between two readings of a chip that events keep naming


class ReadSchedule:
    """When each chip is read next: at the earliest wish, but at most 20 times a second.

    Chips go by their names, times by trio's clock. `begin` must come before `want`.
    """

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._begun: dict[str, float] = {}

    def begin(self, chip: str) -> None:
        """A look at the chip begins, and fulfils all wishes."""
        self.forget(chip)
        self._begun[chip] = trio.current_time()

    def forget(self, chip: str) -> None:
        """Drop all wishes for the chip."""
        self._due.pop(chip, None)

    def want(self, chip: str, *, after: float = 0.0) -> None:
        """Have the chip read in *after* seconds, unless it is due earlier."""
        rested = self._begun[chip] + _REST_SECONDS
        at = max(trio.current_time() + after, rested)
        self._due[chip] = min(self._due.get(chip, at), at)

    def next_of(self, chip: str) -> float:
        """When the chip is due."""
        return self._due[chip]

    def is_due(self, chip: str) -> bool:
        """Whether the chip should be read now; not while a look goes on."""
        return self._due.get(chip, math.inf) <= trio.current_time()
