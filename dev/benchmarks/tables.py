"""What was measured of drivers, how they compare, and the tables of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import chain
from statistics import median, quantiles
from typing import Final

from dev.benchmarks.goals import EXAMPLE_BY_HUAWEI, FIRST_SLICE, GET_INFO, GOALS, RSS, Goal
from dev.benchmarks.idle import Idle
from dev.benchmarks.rounds import FLOORS, Samples

OURS: Final = "npu-dra"
BASE: Final = "npu-dra-base"
"""Our driver as another commit has it."""
EXAMPLE: Final = "dra-example-driver"

COMPARED = (*FLOORS, "call", GET_INFO, FIRST_SLICE, RSS)
"""The figures by which drivers are compared."""
RATIOS = "ratios of medians within the same rounds"


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


def show_rounds(drivers: Mapping[str, Measured]) -> None:
    """Print the figures of each driver over its floors."""
    for name, measured in drivers.items():
        show(
            f"{name} (ms)",
            ("figure", "median", "p99", "floor", "x floor"),
            [
                (figure, *middle(measured.values(figure)), *_floor(measured, figure))
                for figure in FLOORS
            ],
        )
    show(
        f"floors beside {OURS} (ms)",
        ("floor", "median", "p99"),
        [
            (floor, *middle(drivers[OURS].values(floor)))
            for floor in dict.fromkeys(chain.from_iterable(FLOORS.values()))
        ],
    )


def show_starts(drivers: Mapping[str, Measured], floor: float) -> None:
    """Print how long starts took; *floor* is Python's time for our imports alone, in ms."""
    show(
        f"starts (ms, medians); the imports alone, as Python makes them: {number(floor)}",
        ("driver", "to GetInfo", "to the first slice"),
        [
            (name, *(number(median(measured.values(each))) for each in (GET_INFO, FIRST_SLICE)))
            for name, measured in drivers.items()
        ],
    )


def show_idle(title: str, idle: Mapping[str, Idle]) -> None:
    """Print what drivers did while nothing called them."""
    header = ("driver", *(field.name.replace("_", " ") for field in fields(Idle)))
    rows = [(name, *map(number, astuple(values))) for name, values in idle.items()]
    show(title, header, rows)


def show_ratios(other: str, drivers: Mapping[str, Measured]) -> None:
    """Print how our driver compares to another one."""
    show(
        f"{OURS} against {other}; {RATIOS}",
        ("figure", OURS, other, "ratio"),
        [_compared(drivers[OURS], drivers[other], figure) for figure in COMPARED],
    )


def show_goals(drivers: Mapping[str, Measured]) -> None:
    """Print how our driver compares to dra-example-driver and, derived, Huawei's; and our goals."""
    ours, example = drivers[OURS], drivers[EXAMPLE]
    rows = []
    for figure in COMPARED:
        here, value = ratio(ours, example, figure), median(ours.values(figure))
        goal, derived = GOALS.get(figure, Goal()), EXAMPLE_BY_HUAWEI.get(figure)
        rows.append(
            (
                *_compared(ours, example, figure),
                *(str(goal), goal.verdict(here, value)),
                "" if derived is None else number(here * derived),
                "" if goal.huawei is None else f"<= {goal.huawei:g}",
            )
        )
    show(
        f"{OURS} against {EXAMPLE}; {RATIOS}; our goals",
        ("figure", OURS, EXAMPLE, "ratio", "goal", "", "to Huawei's*", "goal"),
        rows,
    )
    print(
        "* derived, not measured: the ratio here, times that of dra-example-driver to Huawei's\n"
        "  driver when both ran beside each other on another machine (dev/benchmarks/goals.py)"
    )


def _compared(ours: Measured, theirs: Measured, figure: str) -> tuple[str, ...]:
    medians = (number(median(measured.values(figure))) for measured in (ours, theirs))
    return (figure, *medians, number(ratio(ours, theirs, figure)))


def middle(values: Sequence[float]) -> tuple[str, str]:
    """Median and p99, as texts."""
    return number(median(values)), number(p99(values))


def p99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else values[0]


def floors(measured: Measured, figure: str) -> tuple[tuple[float, float], ...]:
    """The sum of a figure's floors and the ratio to it, of each round that has some."""
    sums = (
        (samples, sum(median(samples[floor]) for floor in FLOORS.get(figure, ())))
        for samples in measured.with_figure(figure)
    )
    return tuple((floor, median(samples[figure]) / floor) for samples, floor in sums if floor)


def _floor(measured: Measured, figure: str) -> tuple[str, str]:
    """The medians of both, as texts."""
    found = floors(measured, figure)
    if not found:
        return "0", ""
    return number(median(floor for floor, _ in found)), number(median(over for _, over in found))


def number(value: float) -> str:
    """A number with about three digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"


def show(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    print(f"\n{table(title, header, rows)}", flush=True)


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as text."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [title]
    for line in lines:
        first, *rest = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        text.append("  ".join((first, *rest)).rstrip())
    return "\n".join(text)
