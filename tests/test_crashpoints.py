"""Crash points cannot be armed by accident."""

import os
import subprocess
import sys

import pytest

from trio_npu_dra.crashpoints import VARIABLE, Point, check, reached


@pytest.mark.parametrize("value", ["prepare", "prepare.locked:0"])
def test_a_value_that_is_no_point_keeps_the_daemon_from_starting(value: str) -> None:
    """One line names the variable, and no daemon runs."""
    run = subprocess.run(
        [sys.executable, "-m", "trio_npu_dra.cli.main", "serve", "--node-name=n"],
        env=os.environ | {VARIABLE: value},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert run.returncode == 1
    assert run.stderr == (
        f"npu-dra serve: {VARIABLE}={value} is no crash point, and it is for tests only: "
        "remove the variable\n"
    )


def test_points_do_nothing_when_none_is_armed(caplog: pytest.LogCaptureFixture) -> None:
    """That is so in every other test of this suite."""
    check()
    for point in Point:
        reached(point)

    assert not caplog.records
