"""Processes that each do one thing; from one that has no other threads, as a fork wants it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

RUN = """
import json, signal, subprocess
from tests.mutants.forks import Task, run_all

def well(say):
    say("one")
    say("two")

def badly(say):
    raise ValueError

def late(say):
    say(str(subprocess.Popen(["sleep", "60"]).pid))
    while True:
        pass

def alarmed(say):
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    late(say)

runs = (well, badly, late, alarmed)
tasks = [Task(subject=run.__name__, run=run, seconds=1.0) for run in runs]
ended = run_all(tasks, at_once=2)
print(json.dumps([[end.subject, end.is_well, end.timed_out, end.said] for end in ended]))
"""


def test_a_task_ends_well_or_badly_or_is_ended() -> None:
    """With what it said, and with all that it started."""
    run = subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, check=True, cwd=REPOSITORY, timeout=60
    )
    ended = {name: rest for name, *rest in json.loads(run.stdout)}
    children = [ended[name].pop()[0] for name in ("late", "alarmed")]
    assert ended == {
        "well": [True, False, ["one", "two"]],
        "badly": [False, False, []],
        "late": [False, True],
        "alarmed": [False, True],
    }
    assert not any(Path(f"/proc/{child}/exe").exists() for child in children)
