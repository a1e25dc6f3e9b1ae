"""The parts of `just bench` that need no control plane."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

import pytest

from dev.benchmarks import page, tables
from dev.benchmarks.goals import EXAMPLE_BY_HUAWEI, FIRST_SLICE, GET_INFO, GOALS, RSS
from dev.benchmarks.idle import Idle
from dev.benchmarks.image import commit_of
from dev.benchmarks.machine import python_build
from dev.benchmarks.measured import EXAMPLE, OURS, Measured, ratio
from dev.benchmarks.rounds import FLOORS, Samples
from dev.cluster.processes import ClusterError

IDLE = Idle(cpu_percent=0, written_bytes=0, requests=0, writes=0, rss_mib=0, pss_mib=0)


def measured(*rounds: Samples) -> Measured:
    """What was measured of a driver."""
    return Measured(rounds=rounds, idle=IDLE, holding=IDLE)


def everywhere(value: float) -> Measured:
    """A driver whose figures are all the same."""
    floors = [floor for floors in FLOORS.values() for floor in floors]
    return measured({figure: [value] for figure in (*tables.COMPARED, *floors)})


def test_drivers_are_compared_within_rounds() -> None:
    """A slow round is slow for both; a figure is compared in those rounds that have it."""
    ours = measured({"start": [9.0]}, {"call": [1.0, 3.0, 2.0]}, {"call": [40.0]}, {"call": [6.0]})
    theirs = measured({"start": [3.0]}, {"call": [1.0]}, {"call": [10.0]}, {"call": [2.0]})
    assert ratio(ours, theirs, "call") == 3.0
    assert ratio(ours, theirs, "start") == 3.0


def test_goals_are_shown_beside_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has the ratio to the example driver, and what that makes of Huawei's."""
    tables.show_goals({OURS: everywhere(60), EXAMPLE: everywhere(50)})
    shown = capsys.readouterr().out
    rows = dict(
        re.split(r"  +", line, maxsplit=1) for line in shown.splitlines() if "60.00" in line
    )
    cells = {figure: re.split(r"  +", rest) for figure, rest in rows.items()}
    assert cells["prepare"] == ["60.00", "50.00", "1.20", "<= 1.25", "met", "0.82", "<= 0.92"]
    assert cells["unprepare"] == ["60.00", "50.00", "1.20", "0.82"]
    assert cells[GET_INFO] == ["60.00", "50.00", "1.20"]
    assert cells[FIRST_SLICE][2:] == ["1.20", "<= 0.45", "missed", "1.13", "<= 0.45"]
    assert cells[RSS] == ["60.00", "50.00", "1.20", "<= 55 MiB", "missed", "0.99"]
    assert "derived" in shown


def test_goals_are_of_what_is_compared() -> None:
    """No goal goes unmeasured because of its name."""
    assert set(GOALS) <= set(tables.COMPARED)
    assert set(EXAMPLE_BY_HUAWEI) <= set(tables.COMPARED)


def test_a_python_says_how_it_was_built() -> None:
    """Its version, and whether with PGO."""
    words = python_build([sys.executable])
    assert platform.python_version() in words
    assert words.endswith((" (with PGO)", " (without PGO)"))


def test_a_base_that_is_no_commit_is_named() -> None:
    """What to compare with comes from the command line."""
    with pytest.raises(ClusterError, match="'no-such-branch' is no commit of the clone"):
        commit_of("no-such-branch")


def test_the_page_has_what_runs_have_saved(folder: Path) -> None:
    """Medians of runs with their range, and the rest of the page as it was."""
    files = [folder / "one.json", folder / "two.json"]
    for file, value in zip(files, (60.0, 70.0), strict=True):
        drivers = {OURS: everywhere(value), EXAMPLE: everywhere(50)}
        page.save_claims(str(file), ["a machine"], drivers)
    marked = "before\n<!-- figures of claims -->\nold\n<!-- end of claims -->\nafter\n"
    written = page.with_block(marked, "claims", page.claims([page.load(file) for file in files]))
    assert written.startswith("before\n<!-- figures of claims -->\n\n- a machine\n\nRuns: 2.\n")
    assert written.endswith(" |\n\n<!-- end of claims -->\nafter\n")
    assert (
        "| prepare | 65.00 (60.00-70.00) | 65.00 | 0.33 (0.33-0.33) | 50.00 (50.00-50.00) "
        in written
    )
    assert "| 1.30 (1.20-1.40) | <= 1.25 | 0.88 | <= 0.92 |" in written


def test_the_page_has_marks_for_each_benchmark() -> None:
    """Otherwise nothing is written."""
    text = page.PAGE.read_text(encoding="utf-8")
    for kind in page.BLOCKS:
        assert page.with_block(text, kind, "new figures") != text
