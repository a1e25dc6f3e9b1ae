"""When each chip is read next."""

from __future__ import annotations

import math
from typing import Final

import trio

_QUIET_SECONDS: Final = 0.05  # between two readings of a chip that events keep naming


class ReadSchedule:
    """When each chip is read next: as soon as anybody wants it, at most 20 times a second.

    Chips go by their names, times by trio's clock. A chip has a time once it was read.
    """

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._looked_at: dict[str, float] = {}

    def begin(self, chip: str) -> None:
        """A look at the chip begins: nobody wants another one yet."""
        self.forget(chip)
        self._looked_at[chip] = trio.current_time()

    def forget(self, chip: str) -> None:
        """Nobody wants a look at the chip any more."""
        self._due.pop(chip, None)

    def want(self, chip: str, *, after: float = 0.0) -> None:
        """Have the chip read in *after* seconds, or earlier if somebody else wants it."""
        rested = self._looked_at[chip] + _QUIET_SECONDS
        at = max(trio.current_time() + after, rested)
        self._due[chip] = min(self._due.get(chip, at), at)

    def next_of(self, chip: str) -> float:
        """When the chip is due."""
        return self._due[chip]

    def is_due(self, chip: str) -> bool:
        """Whether the chip is to be read now; not while that goes on."""
        return self._due.get(chip, math.inf) <= trio.current_time()
