"""Processes that each do one task, forked from one without other threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from dev.cluster.processes import wait_until

REPOSITORY = Path(__file__).parents[2]

RUN = """
import json, os, signal
from dev.mutants.forks import Task, run_all

def well(say):
    say("one")
    say("two")

def badly(say):
    raise ValueError

def with_a_child(say):
    child = os.fork()
    if child == 0:
        signal.pause()
    say(str(child))

def late(say):
    with_a_child(say)
    signal.pause()

def alarmed(say):
    with_a_child(say)
    signal.alarm(1)
    signal.pause()

limits = {well: 60.0, badly: 60.0, late: 3.0, alarmed: 60.0}
tasks = [Task(subject=run.__name__, run=run, seconds=limit) for run, limit in limits.items()]
ended = run_all(tasks, at_once=2)
print(json.dumps([[end.subject, end.is_well, end.timed_out, end.said] for end in ended]))
"""


def test_a_task_ends_well_or_badly_or_is_ended() -> None:
    """The result has its lines, and the processes that it started have ended."""
    run = subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, check=True, cwd=REPOSITORY, timeout=60
    )
    ended = {name: rest for name, *rest in json.loads(run.stdout)}
    children = [child for name in ("late", "alarmed") for child in ended[name].pop()]
    assert ended == {
        "well": [True, False, ["one", "two"]],
        "badly": [False, False, []],
        "late": [False, True],
        "alarmed": [False, True],
    }
    programs = [Path(f"/proc/{child}/exe") for child in children]
    wait_until(lambda: not any(program.exists() for program in programs), "their children gone")
