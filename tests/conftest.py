"""Settings for every test, and fixtures of several packages."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from dev.rig.compiled import compiled_simulator

if TYPE_CHECKING:
    from dev.rig.parts import Rig

# An example has no time limit: the first draw alone builds tables of all characters, which takes
# seconds on a busy machine.
_untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("small", _untimed, max_examples=20)
# Each run has the same examples, so that a change fails only because of what it touches.
settings.register_profile("full", _untimed, max_examples=100, derandomize=True)
# To look for what nobody has seen yet: each run has others, for some minutes.
settings.register_profile("long", _untimed, max_examples=3000, print_blob=True)
settings.load_profile("small")  # `--hypothesis-profile` comes later, and wins


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two processes for each core: a third of a test is waiting, for a disk or another process."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.fixture(scope="session")
def simulator() -> Path:
    """The folder with the simulated library and tool, which `create_board` takes as `prebuilt`."""
    return compiled_simulator()


def _short_folder() -> Iterator[Path]:
    """Its name is short enough for sockets; that of pytest has the names of user and test in it."""
    with TemporaryDirectory(prefix="npu-") as name:
        yield Path(name)


folder = pytest.fixture(_short_folder, name="folder")
tmp_path = pytest.fixture(_short_folder, name="tmp_path")


@pytest.fixture
async def rig(folder: Path, simulator: Path) -> AsyncIterator[Rig]:
    """A node with eight NPUs, and its API server."""
    from dev.rig.parts import served_rig  # noqa: PLC0415 - most tests do without the whole daemon

    async with served_rig(folder, simulator) as rig:
        yield rig
