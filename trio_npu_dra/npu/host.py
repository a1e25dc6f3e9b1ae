"""The node around the NPUs: PCI facts in sysfs, and what a container needs of the driver.

A path of the host is seen at two places: where we see it (below a root of ours), which tells
whether it exists, and where the container runtime sees it, which is what goes into a CDI spec.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trio_npu_dra.errors import ClaimUnavailable
from trio_npu_dra.npu.model import Chip, ChipFamily

_HUAWEI: Final = "0x19e5"
_PROCESSING_ACCELERATOR: Final = "0x12"  # PCI base class; Huawei's disks and NICs have others

MOUNT_OPTIONS: Final = ("ro", "rbind", "rprivate")

# Sources: the base lists of ascend-docker-runtime, and the files that its users add by hand.
_DRIVER_PATHS: Final = (
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/include",
    "/usr/local/Ascend/driver/tools",
    "/usr/local/Ascend/driver/version.info",
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/usr/local/sbin/npu-smi",
    "/etc/ascend_install.info",
    "/etc/hccn.conf",
    "/var/queue_schedule",
)
# 310B is a whole computer: parts of its driver are in the system's own folders. So it is with the
# 200I SoC, a 310P.
_SYSTEM_PATHS: Final = ("/etc/hdcBasic.cfg", "/etc/sys_version.conf")
_310B_LIBRARIES: Final = (
    *("aicpu_processer", "aicpu_prof", "aicpu_sharder", "adump", "tsd_eventclient"),
    *("aicpu_scheduler", "dcmi", "mpi_dvpp_adapter", "stackcore", "mmpa", "drvdsmi"),
)
_FAMILY_PATHS: Final[dict[ChipFamily, tuple[str, ...]]] = {
    ChipFamily.ASCEND_310: _SYSTEM_PATHS,
    ChipFamily.ASCEND_310P: _SYSTEM_PATHS,
    ChipFamily.ASCEND_310B: (
        *_SYSTEM_PATHS,
        *(f"/usr/lib64/lib{name}.so" for name in _310B_LIBRARIES),
        "/usr/lib64/libsemanage.so.2",
        "/usr/lib64/aicpu_kernels",
        "/var/slogd",
        "/var/dmp_daemon",
    ),
}

_MANAGER: Final = "davinci_manager"
_USUAL_NODES: Final = ("devmm_svm", "hisi_hdc", "dvpp_cmdlist")
_310B_NODES: Final = (
    *("svm0", "ts_aisle", "upgrade", "sys", "vdec", "vpc", "pngd", "venc", "log_drv"),
    *("acodec", "ai", "ao", "vo", "hdmi", "dvpp_cmdlist"),
)
# Only the 200I SoC has those after the usual ones.
_310P_NODES: Final = (
    *_USUAL_NODES,
    *("vpc", "vdec", "sys", "spi_smbus", "user_config", "ts_aisle", "svm0", "log_drv"),
    *("memory_bandwidth", "upgrade", "event_sched", "xsmem_dev"),
)
_FAMILY_NODES: Final[dict[ChipFamily, tuple[str, ...]]] = {
    ChipFamily.ASCEND_310B: _310B_NODES,
    ChipFamily.ASCEND_310P: _310P_NODES,
    ChipFamily.ASCEND_950: ("hisi_hdc",),
}
_UB_FOLDERS: Final = ("uburma", "ummu")
_UB_FAMILIES: Final = frozenset({ChipFamily.ASCEND_910_A3, ChipFamily.ASCEND_950})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A character device for a container.

    Attributes:
        path: Where the container sees it.
        host_path: Where the container runtime finds it.
    """

    path: str
    host_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount for a container.

    Attributes:
        container_path: Where the container sees it.
        host_path: Where the container runtime finds it.
        options: Mount options.
    """

    container_path: str
    host_path: str
    options: tuple[str, ...] = MOUNT_OPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where the node's files are seen. Nothing is cached: drivers come and go.

    Attributes:
        host_root: The host's `/`; or our own, when a manifest mounts parts of the host into it.
        dev_root: The host's `/dev`.
        sysfs_root: The host's `/sys`.
    """

    host_root: Path = Path("/")
    dev_root: Path = Path("/dev")
    sysfs_root: Path = Path("/sys")

    # --- sysfs -----------------------------------------------------------------------------------

    def accelerators(self) -> tuple[str, ...]:
        """PCI addresses of Huawei's accelerators, ascending; found without the driver."""
        return tuple(sorted(self._find_accelerators()))

    def is_ascend_present(self) -> bool:
        """Whether the node has Ascend hardware, on PCI or as the node's own chip."""
        return bool(self.accelerators()) or (self.dev_root / _MANAGER).exists()

    def numa_node(self, pci_bus_id: str) -> int | None:
        """The NUMA node of a PCI device; None if unknown, which the kernel writes as -1."""
        text = _read(self._pci_devices / pci_bus_id / "numa_node")
        try:
            number = int(text)
        except ValueError:
            return None
        return number if number >= 0 else None

    def pcie_root(self, pci_bus_id: str) -> str | None:
        """The root complex of a PCI device, such as `pci0000:c0`; None if unknown."""
        device = self._pci_devices / pci_bus_id  # a link to its place; missing, it names no root
        parts = device.resolve().parts
        return next((part for part in parts if part.startswith("pci") and ":" in part), None)

    @property
    def _pci_devices(self) -> Path:
        return self.sysfs_root / "bus/pci/devices"

    def _find_accelerators(self) -> Iterator[str]:
        for device in _entries(self._pci_devices):
            if _read(device / "vendor") == _HUAWEI and _read(device / "class").startswith(
                _PROCESSING_ACCELERATOR
            ):
                yield device.name

    # --- what a container needs ------------------------------------------------------------------

    def device_nodes(self, npu: Chip) -> tuple[DeviceNode, ...]:
        """The nodes of one NPU.

        Raises:
            ClaimUnavailable: The node is missing on the host.
        """
        return (self._required_node(f"davinci{npu.physical_id}"),)

    def shared_device_nodes(self, family: ChipFamily) -> tuple[DeviceNode, ...]:
        """The nodes that a container with any NPU of *family* needs; those that exist.

        Raises:
            ClaimUnavailable: davinci_manager, without which nothing works, is missing.
        """
        names = [name for name in _FAMILY_NODES.get(family, _USUAL_NODES) if self._has_node(name)]
        if family in _UB_FAMILIES:
            names += self._ub_nodes()
        return (self._manager_node(family), *(_node(name) for name in names))

    def driver_mounts(self, family: ChipFamily) -> tuple[Mount, ...]:
        """Driver libraries, tools and configuration, read-only; those that exist."""
        return tuple(
            Mount(container_path=path, host_path=path)
            for path in (*_DRIVER_PATHS, *_FAMILY_PATHS.get(family, ()))
            if self._has_path(path)
        )

    def _manager_node(self, family: ChipFamily) -> DeviceNode:
        """The manager's node; 310B has a second one for containers."""
        for_containers = f"{_MANAGER}_docker"
        if family is ChipFamily.ASCEND_310B and self._has_node(for_containers):
            return DeviceNode(path=f"/dev/{_MANAGER}", host_path=f"/dev/{for_containers}")
        return self._required_node(_MANAGER)

    def _required_node(self, name: str) -> DeviceNode:
        if not self._has_node(name):
            raise ClaimUnavailable(
                f"/dev/{name} is missing on the node, or is not a character device: "
                "is the Ascend driver loaded?"
            )
        return _node(name)

    def _ub_nodes(self) -> list[str]:
        """Names below /dev of the nodes of the unified bus."""
        found = (entry for name in _UB_FOLDERS for entry in _entries(self.dev_root / name))
        names = (str(entry.relative_to(self.dev_root)) for entry in sorted(found))
        return [name for name in names if self._has_node(name)]

    # Texts rather than Paths: a CDI file asks some twenty times, and a Path costs more than a stat.

    def _has_node(self, name: str) -> bool:
        try:
            return stat.S_ISCHR(os.stat(f"{self.dev_root}/{name}").st_mode)  # noqa: PTH116 - a text
        except OSError:
            return False

    def _has_path(self, path: str) -> bool:
        """Whether the host has *path*; a link's absolute target is of the host's tree too."""
        try:
            target = os.readlink(f"{self.host_root}{path}")  # noqa: PTH115 - a text
        except OSError:  # missing, or no link
            target = ""
        place = target if target.startswith("/") else path
        return os.path.exists(f"{self.host_root}{place}")  # noqa: PTH110 - a text


def _node(name: str) -> DeviceNode:
    return DeviceNode(path=f"/dev/{name}", host_path=f"/dev/{name}")


def _entries(folder: Path) -> list[Path]:
    """What is in *folder*; nothing when it is missing."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    """A sysfs attribute, empty when it is missing or unreadable."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
