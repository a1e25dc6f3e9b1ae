"""`just bench page FILE...`: renew the tables of docs/performance.md from saved runs.

Several runs of `just bench` give medians over runs, with the range of the runs' medians.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from dev.benchmarks.goals import EXAMPLE_BY_HUAWEI, GOALS, Goal
from dev.benchmarks.idle import Idle
from dev.benchmarks.tables import COMPARED, EXAMPLE, OURS, Measured, floors, number, p99, ratio

PAGE: Final = Path(__file__).parents[2] / "docs/performance.md"
IDLE: Final = {
    "cpu_percent": "CPU, % of a core",
    "written_bytes": "bytes written to disks",
    "requests": "API requests",
    "rss_mib": "RSS in MiB",
    "pss_mib": "PSS in MiB",
}
Run = dict[str, Any]


def save(file: str, kind: str, facts: Sequence[str], **content: Any) -> None:
    """Keep what a run of a benchmark has measured."""
    Path(file).write_text(json.dumps({"kind": kind, "facts": facts} | content))


def main(arguments: Sequence[str]) -> None:
    """Write what the files have; the tables of other benchmarks stay."""
    runs: list[Run] = [json.loads(Path(name).read_text()) for name in arguments]
    page = PAGE.read_text(encoding="utf-8")
    for kind, make in BLOCKS.items():
        if found := [run for run in runs if run["kind"] == kind]:
            page = with_block(page, kind, make(found))
    PAGE.write_text(page, encoding="utf-8")


def with_block(page: str, kind: str, text: str) -> str:
    """The page with that text between the marks of a benchmark."""
    begin, end = f"<!-- figures of {kind} -->\n", f"<!-- end of {kind} -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n\n{end}{after}"


def claims(runs: Sequence[Run]) -> str:
    """The facts of the first run, the figures beside our goals, and what idle drivers did."""
    found = [
        {
            name: Measured(
                rounds=kept["rounds"], idle=Idle(**kept["idle"]), holding=Idle(**kept["holding"])
            )
            for name, kept in run["drivers"].items()
        }
        for run in runs
    ]
    figures = _table(
        (
            *("figure", OURS, "p99", "x floor", EXAMPLE, "ratio to it", "goal"),
            *("to Huawei's, derived", "goal"),
        ),
        [_row(figure, found) for figure in COMPARED],
    )
    idle = _table(
        (
            "while nothing calls",
            OURS,
            EXAMPLE,
            f"{OURS}, 8 claims held",
            f"{EXAMPLE}, 8 claims held",
        ),
        [_idle_row(name, field, found) for field, name in IDLE.items()],
    )
    return f"{_facts(runs[0])}\n\nRuns: {len(runs)}.\n\n{figures}\n\n{idle}"


def scale(runs: Sequence[Run]) -> str:
    """The facts of the last run, and what it printed."""
    return f"{_facts(runs[-1])}\n\n```text\n{runs[-1]['report']}\n```"


BLOCKS: Final[Mapping[str, Callable[[Sequence[Run]], str]]] = {"claims": claims, "scale": scale}


def _row(figure: str, runs: Sequence[Mapping[str, Measured]]) -> tuple[str, ...]:
    ours = [run[OURS] for run in runs]
    over_floors = [[over for _, over in floors(each, figure)] for each in ours]
    ratios = [ratio(run[OURS], run[EXAMPLE], figure) for run in runs]
    goal, derived = GOALS.get(figure, Goal()), EXAMPLE_BY_HUAWEI.get(figure)
    return (
        figure,
        _spread([median(each.values(figure)) for each in ours]),
        number(median(p99(each.values(figure)) for each in ours)),
        _spread([median(overs) for overs in over_floors if overs]),
        _spread([median(run[EXAMPLE].values(figure)) for run in runs]),
        _spread(ratios),
        str(goal),
        "" if derived is None else number(median(ratios) * derived),
        "" if goal.huawei is None else f"<= {goal.huawei:g}",
    )


def _idle_row(name: str, field: str, runs: Sequence[Mapping[str, Measured]]) -> tuple[str, ...]:
    values = (
        [getattr(getattr(run[driver], when), field) for run in runs]
        for when in ("idle", "holding")
        for driver in (OURS, EXAMPLE)
    )
    return (name, *(number(median(each)) for each in values))


def _spread(values: Sequence[float]) -> str:
    """The median and, of several values, their range."""
    if not values:
        return ""
    middle = number(median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))}-{number(max(values))})"


def _facts(run: Run) -> str:
    return "\n".join(f"- {line}" for line in run["facts"])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
