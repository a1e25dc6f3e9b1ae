"""A node on disk with a simulated board whose chips are cut, and what watches it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from tests.claims.chip_folders import PartitionedNode
from tests.claims.instance import Instance
from tests.claims.node import AT_ONCE, NodeOnDisk
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.claims.vnpu_step import VnpuStep
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.ascend.division_poll import DivisionPoll
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.ascend.watcher import BoardWatch
from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard, create_board, load_profile


@dataclass
class CutNode(PartitionedNode):
    """The node; `driver` gives an instance of the driver on it.

    Attributes:
        control: What others do to the board.
        worker: Runs the calls of all instances.
        dcmi: The library.
        division: Has the watcher read the division again.
    """

    control: BoardControl
    worker: DcmiWorker
    dcmi: Dcmi
    division: DivisionPoll = field(default_factory=DivisionPoll)

    def driver(self, patience: Patience = AT_ONCE, *, vnpus: type[Vnpus] = Vnpus) -> Instance:
        """One instance of the driver."""

        def steps(ledger: Ledger, cdi: CdiFolder) -> list[VnpuStep]:
            return [VnpuStep(ledger=ledger, cdi=cdi, vnpus=self.vnpus(vnpus), host=self.disk.host)]

        return Instance(self.disk, steps, patience=patience, partitioning=self.partitioning)

    def vnpus(self, kind: type[Vnpus] = Vnpus) -> Vnpus:
        """The node's vNPUs as an instance sees them."""
        return kind(
            self.worker,
            self.dcmi,
            self.disk.board,
            division=self.division,
            partitioning=self.partitioning,
        )

    def templates(self, chip: int = 0) -> dict[int, str]:
        """The vNPUs of a chip."""
        return {vnpu.id: vnpu.template for vnpu in self.control.vnpus(chip)}


@asynccontextmanager
async def cut_node(root: Path, simulator: Path, profile: str = "910b4-8") -> AsyncIterator[CutNode]:
    """A node with a simulated board, which is watched."""
    board = create_board(load_profile(profile), root / "host", prebuilt=simulator)
    disk = _disk(root, board)
    host = Host(host_root=board.root, dev_root=board.dev_root, sysfs_root=board.sysfs_root)
    dcmi = Dcmi.load(board.root)
    with board.control() as control:
        async with open_worker() as worker, trio.open_nursery() as nursery:
            node = CutNode(disk, control, worker, dcmi)
            watch = BoardWatch(
                worker=worker,
                dcmi=dcmi,
                host=host,
                board=disk.board,
                interval=0.05,
                division=node.division,
            )
            await nursery.start(watch.run)
            yield node
            nursery.cancel_scope.cancel()


def _disk(root: Path, board: SimulatedBoard) -> NodeOnDisk:
    (root / "dev").symlink_to(board.dev_root)
    disk = NodeOnDisk(root)
    disk.reboot()
    return disk
