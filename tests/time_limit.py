"""Ends a process of pytest in which a test takes too long, and shows where it was.

A loop that never yields, or that is shielded from cancellation, cares neither for trio's deadlines
nor for an exception in another task. So the process ends: `pytest-xdist` fails the test by its name
and runs the others in another one. The interpreter's watchdog needs no lock of the interpreter, no
signal (some tests have an alarm of their own) and no second thread of Python.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator
from typing import Final

import pytest

STDERR: Final = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the limit."""
    parser.addoption(
        "--time-limit",
        type=float,
        default=900,
        metavar="SECONDS",
        help="how long setup, call and teardown of a test may each take (default 900)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep standard error, which is another file while a test runs."""
    config.stash[STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close it."""
    os.close(config.stash[STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Run the setup of a test, its call or its teardown."""
    stderr = item.config.stash[STDERR]
    faulthandler.dump_traceback_later(item.config.option.time_limit, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup
