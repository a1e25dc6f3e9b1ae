"""Nodes with partitions, and chips that are folders with a file for each vNPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import trio

from dev.rig.boards import die
from tests.claims.instance import Instance
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, npu, result
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.claims.vnpu_step import VnpuStep
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.dcmi.errors import Busy, IdUnknown
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.offers import PartitionMode
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.kit.base.errors import DevicesUnknown
from trio_npu_dra.kit.base.observable import Observable

QUARTER, HALF = "vir05-1c-8g", "vir10-3c-16g"


def quarter(number: int = 0, chip: int = 0) -> str:
    """The name of a partition that has a quarter of a 910B4."""
    return f"npu-{chip}-{QUARTER}-{number}"


@dataclass
class PartitionedNode:
    """A node whose chips are cut.

    Attributes:
        disk: Its files and claims.
        partitioning: That chips are cut.
    """

    disk: NodeOnDisk
    partitioning: Observable[PartitionMode] = field(
        default_factory=lambda: Observable(PartitionMode(is_on=True)), kw_only=True
    )

    def driver(self) -> Instance:
        """One instance of the driver."""
        raise NotImplementedError

    def templates(self, chip: int = 0) -> dict[int, str]:
        """The vNPUs of a chip."""
        raise NotImplementedError

    def store(self, name: str, *devices: str) -> None:
        """Have a claim be allocated devices."""
        results = (result(device, f"r{number}") for number, device in enumerate(devices))
        self.disk.source.store(claim(name, *results))

    async def prepared(self) -> Instance:
        """An instance that has prepared claim a, which has a quarter of NPU 0."""
        self.store("a", quarter())
        driver = self.driver()
        assert await driver.prepare("a") == ""
        return driver

    async def end(self, driver: Instance | None = None) -> None:
        """Unprepare claim a; nothing is left."""
        assert await (driver or self.driver()).unprepare("a") == ""
        assert self.templates() == {}
        assert self.is_clean()

    def is_clean(self) -> bool:
        """Whether no claim has anything, and the driver has left nothing."""
        locks = [*self.disk.state_folder.glob("steps/*")]
        return not (self.disk.record_uids() or self.disk.cdi_uids() or locks)


# --- chips that are folders ----------------------------------------------------------------------

AWAY = "away"
"""The name of a file that is there while no chip is listed."""


def cuttable(number: int) -> Chip:
    """A 910B4 with all facts that count."""
    return replace(npu(number), board_id=0x41, ai_cores=20, memory_bytes=32 << 30)


def board_of_all() -> Board:
    """Two chips that can be cut, and an A3 card."""
    dies = (die(2), die(3))
    chips = (cuttable(0), cuttable(1), *dies)
    return Board(chips=chips, multi_die_policy=MultiDiePolicy.UNION)


@dataclass(frozen=True)
class Chips:
    """Chips that are folders; stands for `ascend.vnpus.Vnpus`."""

    folder: Path

    async def of(self, node: str) -> Mapping[int, str]:
        """The templates, by id."""
        await trio.lowlevel.checkpoint()
        if (self.folder / AWAY).exists():
            raise DevicesUnknown(f"{node} is not listed")
        return {int(path.name): path.read_text() for path in self._files(node)}

    async def create(self, node: str, template: str, vnpu: int) -> int:
        """Make one, which nobody may have made."""
        await trio.lowlevel.checkpoint()
        path = self.folder / Path(node).name / str(vnpu)
        if path.exists():
            raise Busy(-8020, "dcmi_create_vdevice")
        path.write_text(template)
        await trio.lowlevel.checkpoint()
        return vnpu

    async def destroy(self, node: str, vnpu: int) -> None:
        """Remove one."""
        await trio.lowlevel.checkpoint()
        try:
            (self.folder / Path(node).name / str(vnpu)).unlink()
        except FileNotFoundError:
            raise IdUnknown(-8007, "dcmi_set_destroy_vdevice") from None
        await trio.lowlevel.checkpoint()

    async def seen(self) -> None:
        """No Board is kept up to date."""
        await trio.lowlevel.checkpoint()

    def known(self, node: str) -> Mapping[int, str]:
        """As `of`: the Board is right."""
        return {int(path.name): path.read_text() for path in self._files(node)}

    async def processes(self, node: str) -> tuple[int, ...]:
        """They are never known."""
        raise DevicesUnknown(f"{node} does not tell")

    def place_of(self, chip: Chip) -> str | None:
        """Always the same."""
        return chip.device_node

    def _files(self, node: str) -> list[Path]:
        return list((self.folder / Path(node).name).iterdir())


@dataclass(frozen=True, slots=True, kw_only=True)
class CutHost(Host):
    """A host on which a vNPU has a device node as long as it has its file."""

    chips: Path

    def has_node(self, name: str) -> bool:
        """Whether there is one."""
        if name.startswith("vdavinci"):
            return any(self.chips.glob(f"*/{name.removeprefix('vdavinci')}"))
        return Host.has_node(self, name)


@dataclass
class FolderNode(PartitionedNode):
    """A node with such chips.

    Attributes:
        chips: The folder with all of them.
    """

    chips: Path

    def driver(self, patience: Patience = AT_ONCE, *, vnpus: type[Chips] = Chips) -> Instance:
        """One instance of the driver."""
        return Instance(
            self.disk,
            lambda ledger, _: [self.step(vnpus, ledger)],
            patience=patience,
            partitioning=self.partitioning,
        )

    def step(self, vnpus: type[Chips] = Chips, ledger: Ledger | None = None) -> VnpuStep:
        """The step of an instance."""
        host = self.disk.host
        return VnpuStep(
            ledger=ledger or self.disk.ledger(),
            cdi=self.disk.cdi(),
            vnpus=cast("Vnpus", vnpus(self.chips)),
            host=CutHost(host_root=host.host_root, dev_root=host.dev_root, chips=self.chips),
        )

    def templates(self, chip: int = 0) -> dict[int, str]:
        """The vNPUs of a chip."""
        return {int(path.name): path.read_text() for path in self.path(chip).iterdir()}

    def path(self, chip: int = 0) -> Path:
        """The folder of a chip."""
        return self.chips / f"davinci{chip}"


def folder_node(disk: NodeOnDisk) -> FolderNode:
    """Two such chips, and an A3 card that is none."""
    disk.board.set(board_of_all())
    node = FolderNode(disk, disk.root / "chips")
    for number in range(2):
        node.path(number).mkdir(parents=True)
    return node
