"""A simulated board, its library through real ctypes, and the thread that calls it.

A test gets another board by `@pytest.mark.parametrize("profile", [...])`.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import trio

from dev.rig.looking import Look, Relay
from tests.ascend.pacing import Counted, Paced
from tests.ascend.watching import Watching
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.ascend.discovery import discover
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.lab.simulator import (
    BoardControl,
    Profile,
    SimulatedBoard,
    create_board,
    load_profile,
)


@pytest.fixture
def profile() -> Profile:
    """A server with eight 910B4."""
    return load_profile("910b4-8")


@pytest.fixture
def simulated(profile: Profile, tmp_path: Path, simulator: Path) -> SimulatedBoard:
    """The board laid out on disk."""
    return create_board(profile, tmp_path / "node", prebuilt=simulator)


@pytest.fixture
def control(simulated: SimulatedBoard) -> Iterator[BoardControl]:
    """Changes the board; checks that no call is made while `dcmi_init` runs."""
    with simulated.control() as control:
        yield control
        assert control.calls_beside_init == 0


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
    """The thread for DCMI calls; one that is out at its deadline hangs."""
    async with open_worker(hung_seconds=0.0) as worker:
        yield worker


@pytest.fixture
def relay(worker: DcmiWorker) -> Relay:
    """The same thread, and what is asked of it."""
    return Relay(worker)


@pytest.fixture
def look(relay: Relay, dcmi: Dcmi, host: Host) -> Look:
    """Discovers the board, knowing what the argument says."""
    return lambda known=EMPTY_BOARD: discover(relay, dcmi, host, known=known)


@pytest.fixture
async def board(look: Look, dcmi: Dcmi) -> Board:
    """What discovery finds while nothing is wrong."""
    dcmi.init()
    return await look()


@pytest.fixture
def watching(nursery: trio.Nursery, worker: DcmiWorker, dcmi: Dcmi, host: Host) -> Watching:
    """A watcher that polls fast and has events too."""
    return Watching(nursery, worker, dcmi, host)


@pytest.fixture
def hang(control: BoardControl) -> Iterator[Callable[[str, int], None]]:
    """Lets calls not return until the test ends."""
    hung: list[tuple[str, int]] = []

    def start(function: str, device: int) -> None:
        control.hang(function, device)
        hung.append((function, device))

    yield start
    for function, device in hung:
        control.release(function, device)


@pytest.fixture
def counted(simulated: SimulatedBoard) -> Iterator[Counted]:
    """The board's library; what was held up goes on at the end."""
    dcmi = Counted.load(simulated.root)
    yield dcmi
    for gate in dcmi.held.values():
        gate.set()


@pytest.fixture
def paced(
    nursery: trio.Nursery,
    relay: Relay,
    counted: Counted,
    host: Host,
    tmp_path: Path,
) -> Paced:
    """A watcher that looks every ten seconds, and keeps what it knows in a file."""
    return Paced(nursery, relay, counted, host, tmp_path)


class Card:
    """Card 5 as the host sees it: on the PCI bus, and by its device node."""

    def __init__(self, simulated: SimulatedBoard) -> None:
        self._bus = simulated.sysfs_root / "bus/pci/devices/0000:41:00.0"
        self._node = simulated.dev_root / "davinci5"
        self._aside = simulated.root

    def pull(self) -> None:
        """Take it out."""
        self._bus.rename(self._aside / self._bus.name)
        self.unlist()

    def unlist(self) -> None:
        """Have the library not list it, while it stays on the bus."""
        self._node.rename(self._aside / self._node.name)

    def put_back(self) -> None:
        """Undo that."""
        for path in (self._bus, self._node):
            if self._aside / path.name in self._aside.iterdir():
                (self._aside / path.name).rename(path)


@pytest.fixture
def card(simulated: SimulatedBoard) -> Card:
    """A card that can be pulled."""
    return Card(simulated)
