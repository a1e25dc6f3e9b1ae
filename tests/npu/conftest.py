"""A simulated board, its library through real ctypes, and the thread that calls it.

A test gets another board by `@pytest.mark.parametrize("profile", [...])`.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.npu.host import Host
from trio_npu_dra.simulator import (
    BoardControl,
    Profile,
    SimulatedBoard,
    compile_simulator,
    create_board,
    load_profile,
)


@pytest.fixture(scope="session")
def simulator_binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated library, compiled once."""
    return compile_simulator(tmp_path_factory.mktemp("simulator"))


@pytest.fixture
def profile() -> Profile:
    """A server with eight 910B4."""
    return load_profile("910b4-8")


@pytest.fixture
def simulated(profile: Profile, tmp_path: Path, simulator_binaries: Path) -> SimulatedBoard:
    """The board laid out on disk."""
    return create_board(profile, tmp_path / "node", prebuilt=simulator_binaries)


@pytest.fixture
def control(simulated: SimulatedBoard) -> Iterator[BoardControl]:
    """Changes the board."""
    with simulated.control() as control:
        yield control


@pytest.fixture
def dcmi(simulated: SimulatedBoard) -> Dcmi:
    """The board's library, loaded but not initialised."""
    return Dcmi.load(simulated.root)


@pytest.fixture
def host(simulated: SimulatedBoard) -> Host:
    """The files of the board's host."""
    return Host(
        host_root=simulated.root, dev_root=simulated.dev_root, sysfs_root=simulated.sysfs_root
    )


@pytest.fixture
async def worker() -> AsyncIterator[DcmiWorker]:
    """The thread for DCMI calls."""
    async with open_worker() as worker:
        yield worker
