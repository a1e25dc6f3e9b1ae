"""One reading of a chip's health, and the agreement of several."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from trio_npu_dra.ascend.dcmi.types import Severity

APART: Final = 1.0
"""Seconds between two readings that count as two."""


@dataclass(frozen=True, slots=True)
class HealthSample:
    """A reading of a chip's health.

    Attributes:
        codes: The active codes with the library's messages; None if they cannot be read.
        is_full: Whether the chip may have more codes than the library could list.
        severity: The worst alarm in its health.
        gone: The chip does not exist any more.
        unmonitored: Why it could not be read; empty if it could.
        missing: Whether that is because the Ascend driver knows no such chip; a second such
            reading in a row makes it *gone*.
        booting: Whether that is because the chip boots.
        pending: Whether that is because the answer takes long: it may come.
        began: When it began: it says nothing of events that came later.
    """

    codes: Mapping[int, str] | None = field(default_factory=dict)
    is_full: bool = False
    severity: Severity = Severity.WARNING
    gone: bool = False
    unmonitored: str = ""
    missing: bool = False
    booting: bool = False
    pending: bool = False
    began: float = math.inf

    @property
    def is_whole(self) -> bool:
        """Whether all of it could be read."""
        return not self.gone and not self.unmonitored and self.codes is not None


class Agreement:
    """Confirms readings of one chip: two in a row, or one and an event.

    The library may answer out of a table that it is just writing. Pure, on the caller's clock.
    """

    def __init__(self) -> None:
        self._missing: float | None = None  # since when the Ascend driver knows no such chip
        self._is_gone = False  # whether two readings agree on it
        self._once: dict[int, float] = {}  # codes that one reading listed, by when

    @property
    def reread_at(self) -> float | None:
        """When another reading can confirm the last one; None if nothing is in doubt."""
        times = [*self._once.values(), *([] if self._missing is None else [self._missing])]
        return min(times) + APART if times else None

    def confirmed(self, reading: HealthSample, known: Collection[int], now: float) -> HealthSample:
        """The newest reading without codes that were listed for the first time.

        *known* codes need no second reading: of events, and of faults that are known. A missing
        chip is gone only if it was missing before.
        """
        if reading.pending:
            return reading
        before, self._once = self._once, {}
        if reading.missing:
            first = now if self._missing is None else min(self._missing, now)
            self._is_gone |= now - first >= APART
            self._missing = None if self._is_gone else first
            return HealthSample(gone=True) if self._is_gone else reading
        self._missing, self._is_gone = None, False
        if reading.codes is None:
            return reading
        for code in reading.codes.keys() - set(known):
            since = min(before.get(code, now), now)
            if now - since < APART:
                self._once[code] = since
        codes = {code: text for code, text in reading.codes.items() if code not in self._once}
        return replace(reading, codes=codes)
