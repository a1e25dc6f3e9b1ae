"""The figures as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import chain
from statistics import median, quantiles
from typing import Final

from benchmarks.drivers import Driver
from benchmarks.idle import Idle
from benchmarks.rounds import FLOORS, Samples

GET_INFO: Final = "start until GetInfo is answered"
FIRST_SLICE: Final = "start until the first slice is accepted"
RSS: Final = "idle RSS (MiB)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure of Huawei's Go driver on another machine, and our goal.

    Attributes:
        theirs: Its median, in ms or MiB.
        ratio: Our goal as a multiple of that.
    """

    theirs: float
    ratio: float | None = None


GOALS: Final[Mapping[str, Goal]] = {
    "prepare": Goal(theirs=3.4, ratio=1.1),
    "unprepare": Goal(theirs=1.4),
    "prepare again": Goal(theirs=2.2),
    "burst of 8 prepare calls": Goal(theirs=24, ratio=0.9),
    "8 claims in one prepare call": Goal(theirs=28, ratio=0.45),
    "CPU of prepare + unprepare": Goal(theirs=3.5),
    GET_INFO: Goal(theirs=34),
    FIRST_SLICE: Goal(theirs=1037, ratio=0.5),
    RSS: Goal(theirs=49, ratio=1.2),
}


def show_rounds(rounds: Mapping[str, Sequence[Samples]]) -> None:
    """Print the figures of each driver over its floors, then the ratios between drivers.

    Args:
        rounds: All rounds by driver, as many of each; ours comes first.
    """
    for name, samples in rounds.items():
        _show_figures(name, samples)
    ours, *others = rounds
    show(
        f"floors beside {ours} (ms)",
        ("floor", "median", "p99"),
        [
            (floor, *middle(_all(rounds[ours], floor)))
            for floor in dict.fromkeys(chain.from_iterable(FLOORS.values()))
        ],
    )
    for other in others:
        show(
            f"{ours} against {other}, the same rounds",
            ("figure", "ratio"),
            [
                (figure, number(_ratio(rounds[ours], rounds[other], figure)))
                for figure in (*FLOORS, "call")
            ],
        )


def _show_figures(name: str, samples: Sequence[Samples]) -> None:
    show(
        f"{name} (ms)",
        ("figure", "median", "p99", "floor", "x floor"),
        [(figure, *middle(_all(samples, figure)), *_floor(samples, figure)) for figure in FLOORS],
    )


def show_starts(starts: Mapping[str, Sequence[Driver]], floor: float) -> None:
    """Print how long starts took.

    Args:
        starts: All starts by driver.
        floor: The time that Python takes for our imports alone, in ms.
    """
    show(
        f"starts (ms, medians); the imports alone, as Python makes them: {number(floor)}",
        ("driver", "to GetInfo", "to the first slice"),
        [
            (
                name,
                number(median(driver.get_info_ms for driver in drivers)),
                number(median(driver.slice_ms for driver in drivers)),
            )
            for name, drivers in starts.items()
        ],
    )


def show_idle(title: str, idle: Mapping[str, Idle]) -> None:
    """Print what drivers did while nothing called them."""
    header = ("driver", *(field.name.replace("_", " ") for field in fields(Idle)))
    rows = [(name, *map(number, astuple(values))) for name, values in idle.items()]
    show(title, header, rows)


def show_goals(rounds: Sequence[Samples], starts: Sequence[Driver], idle: Idle) -> None:
    """Print the figures of Huawei's driver elsewhere, beside ours here."""
    here = {
        **{figure: median(_all(rounds, figure)) for figure in FLOORS},
        GET_INFO: median(driver.get_info_ms for driver in starts),
        FIRST_SLICE: median(driver.slice_ms for driver in starts),
        RSS: idle.rss_mib,
    }
    rows = [
        (
            figure,
            number(here[figure]),
            f"{goal.theirs:g}",
            f"<= {goal.ratio:g} x" if goal.ratio else "",
        )
        for figure, goal in GOALS.items()
    ]
    show(
        "goals; NOT comparable: Huawei's Go driver was measured elsewhere, on other hardware",
        ("figure", "here", "Go driver elsewhere", "goal"),
        rows,
    )


def _all(rounds: Iterable[Samples], name: str) -> list[float]:
    return [value for samples in rounds for value in samples[name]]


def middle(values: Sequence[float]) -> tuple[str, str]:
    """Median and p99, as texts."""
    p99 = quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else values[0]
    return number(median(values)), number(p99)


def _floor(rounds: Sequence[Samples], figure: str) -> tuple[str, str]:
    """The sum of a figure's floors and the ratio to it, each a median over rounds."""
    floors = [sum(median(samples[floor]) for floor in FLOORS[figure]) for samples in rounds]
    if not median(floors):
        return "0", ""
    ratios = [
        median(samples[figure]) / floor
        for samples, floor in zip(rounds, floors, strict=True)
        if floor
    ]
    return number(median(floors)), number(median(ratios))


def _ratio(ours: Sequence[Samples], theirs: Sequence[Samples], figure: str) -> float:
    return median(
        median(our[figure]) / median(their[figure])
        for our, their in zip(ours, theirs, strict=True)
        if median(their[figure])
    )


def number(value: float) -> str:
    """A number with about three digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"


def show(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    print(f"\n{title}")
    for line in lines:
        first, *rest = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join((first, *rest)).rstrip(), flush=True)
