"""What is sure of a chip's readings: what two in a row say, or one that an event agrees with.

Faults end pods, so no single reading makes one: the library may have answered out of a table that
it was just writing, or about another moment than the one before. Pure, on the caller's clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from trio_npu_dra.ascend.health_sample import HealthSample

APART: Final = 1.0
"""Seconds between two readings that count as two."""


class Agreement:
    """What the readings of one chip agree on."""

    def __init__(self) -> None:
        self._missing: float | None = None  # since when the Ascend driver knows no such chip
        self._is_gone = False  # whether that is sure
        self._once: dict[int, float] = {}  # codes that one reading listed, by when

    @property
    def reread_at(self) -> float | None:
        """When another reading can confirm the last one; None if it need not be."""
        times = [*self._once.values(), *([] if self._missing is None else [self._missing])]
        return min(times) + APART if times else None

    def sure(self, reading: HealthSample, told: Collection[int], now: float) -> HealthSample:
        """What is sure of a reading.

        Args:
            reading: What was read now.
            told: Codes that need no second reading: of events, and of faults that are known.
            now: The time.

        Returns:
            The reading without codes that were listed for the first time, and with a missing chip
            gone only if it was missing before.
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
        for code in reading.codes.keys() - set(told):
            since = min(before.get(code, now), now)
            if now - since < APART:
                self._once[code] = since
        codes = {code: text for code, text in reading.codes.items() if code not in self._once}
        return replace(reading, codes=codes)
