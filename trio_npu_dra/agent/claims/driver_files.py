"""What containers need of the host besides their NPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trio_npu_dra.ascend.container import (
    DeviceNode,
    Mount,
    driver_mounts,
    extra_mounts,
    root_info_mounts,
    shared_nodes,
    ub_mounts,
)
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.unified_bus import topology_file


class DriverFiles:
    """What containers need besides their NPUs, found out of a host once for each family."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._nodes: dict[ChipFamily, Sequence[DeviceNode]] = {}
        self._mounts: dict[ChipFamily, Sequence[Mount]] = {}
        self._ub_mounts: dict[ChipFamily, Sequence[Mount]] = {}
        self._extra_mounts: Sequence[Mount] | None = None

    def nodes(self, family: ChipFamily) -> Sequence[DeviceNode]:
        """The device nodes for any NPU of *family*.

        Raises:
            DeviceNodeMissing: One that is needed is missing.
        """
        if family not in self._nodes:
            self._nodes[family] = shared_nodes(self._host, family)
        return self._nodes[family]

    def mounts(self, family: ChipFamily) -> Sequence[Mount]:
        """The files of the Ascend driver."""
        if family not in self._mounts:
            self._mounts[family] = driver_mounts(self._host, family)
        return self._mounts[family]

    def root_info(self, family: ChipFamily, physical_ids: Iterable[int]) -> Sequence[Mount]:
        """HCCL's root info, if it fits these chips."""
        return root_info_mounts(self._host, family, physical_ids)

    def ub_mounts(self, family: ChipFamily) -> Sequence[Mount]:
        """The user space of the unified bus."""
        if family not in self._ub_mounts:
            self._ub_mounts[family] = ub_mounts(self._host, family)
        return self._ub_mounts[family]

    def topology_file(self, chip: Chip) -> str | None:
        """The path of the topology that HCCL needs for a chip; None without one."""
        return topology_file(self._host, chip)

    def extra_mounts(self) -> Sequence[Mount]:
        """What the operator adds to them."""
        if self._extra_mounts is None:
            self._extra_mounts = extra_mounts(self._host)
        return self._extra_mounts
