"""What was measured of drivers, and how they compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from dev.benchmarks.idle import Idle
from dev.benchmarks.rounds import Samples

OURS: Final = "npu-dra"
BASE: Final = "npu-dra-base"
"""Our driver as another commit has it."""
EXAMPLE: Final = "dra-example-driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All figures of one driver.

    Attributes:
        rounds: What was measured at a time, with all drivers in turn. Each has some figures: a
            round of claims, a start, or the memory at the end.
        idle: What it did while nothing called it, after its start.
        holding: The same, with claims prepared.
    """

    rounds: Sequence[Samples]
    idle: Idle
    holding: Idle

    def values(self, figure: str) -> list[float]:
        """A figure's samples of all rounds."""
        return [value for samples in self.with_figure(figure) for value in samples[figure]]

    def with_figure(self, figure: str) -> Iterator[Samples]:
        """The rounds that have a figure."""
        return (samples for samples in self.rounds if figure in samples)


def ratio(ours: Measured, theirs: Measured, figure: str) -> float:
    """The ratio of the medians within a round; of all rounds, their median."""
    return median(
        median(our[figure]) / median(their[figure])
        for our, their in zip(ours.with_figure(figure), theirs.with_figure(figure), strict=True)
        if median(their[figure])
    )
