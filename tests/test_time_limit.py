"""Each test has a time limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

ENDLESS = """
import trio

async def test_endless():
    with trio.CancelScope(shield=True):
        while True:
            pass

def test_next():
    pass
"""


def test_a_loop_without_end_costs_its_own_test_only(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The test fails by its name, its stacks are shown, and the next test is run."""
    assert pytestconfig.pluginmanager.has_plugin("tests.time_limit")
    (tmp_path / "test_it.py").write_text(ENDLESS)
    options = ["-c", "pyproject.toml", "-p", "no:cacheprovider", "-n", "1"]
    options += ["-p", "tests.time_limit", "--time-limit", "3"]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=300,
    )

    assert "crashed while running 'test_it.py::test_endless'" in run.stdout
    assert "1 failed, 1 passed" in run.stdout
    assert "Timeout" in run.stderr
    assert "most recent call first" in run.stderr
