"""The node around the NPUs: PCI facts in sysfs, and which files the host has.

Each host path has two forms: ours, below a root, to test for existence, and the container
runtime's, for the CDI spec.
"""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trio_npu_dra.ascend.host_path import resolve

_HUAWEI: Final = "0x19e5"
_PROCESSING_ACCELERATOR: Final = "0x12"  # PCI base class; Huawei's disks and NICs have others

_NPU_NODE: Final = re.compile(r"davinci\d+")
_NUMA_NODE: Final = re.compile(r"node(\d+)")
_VNPU_NODE: Final = re.compile(r"vdavinci\d+")

MANAGER: Final = "davinci_manager"
"""The device node of the Ascend driver's manager, without which nothing works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where the node's files are seen. No fact outlasts its file: Ascend drivers come and go.

    Attributes:
        host_root: The host's `/`; or our own, when a manifest mounts parts of the host into it.
        extra_mounts: Paths of the host that an operator gives to containers with an NPU, each with
            its path in the container.
        unfit: Paths of another kind than they should be, which no container gets.
        said: The messages about its files that have been logged.
    """

    host_root: Path = Path("/")
    dev_root: Path = Path("/dev")
    sysfs_root: Path = Path("/sys")
    extra_mounts: tuple[tuple[str, str], ...] = ()
    unfit: set[str] = field(default_factory=set, repr=False, compare=False)
    said: set[str] = field(default_factory=set, repr=False, compare=False)

    # --- sysfs -----------------------------------------------------------------------------------

    def accelerators(self) -> tuple[str, ...]:
        """PCI addresses of Huawei's accelerators, ascending; found without the Ascend driver."""
        return tuple(
            sorted(
                device.name
                for device in _entries(self._pci_devices)
                if _read(device / "vendor") == _HUAWEI
                and _read(device / "class").startswith(_PROCESSING_ACCELERATOR)
            )
        )

    def is_ascend_present(self) -> bool:
        """Whether the node has Ascend hardware, on PCI or as the node's own chip."""
        return bool(self.accelerators()) or os.path.exists(self.dev_root / MANAGER)  # noqa: PTH110 - ours raises where we may not look

    def numa_node(self, pci_bus_id: str) -> int | None:
        """The NUMA node of a PCI device; None if unknown, which the kernel writes as -1."""
        text = _read(self._pci_devices / pci_bus_id / "numa_node")
        try:
            number = int(text)
        except ValueError:
            return None
        return number if number >= 0 else None

    def local_cpus(self, pci_bus_id: str) -> str | None:
        """The CPUs nearest to a PCI device, as a list such as `0-23,48-71`; None if unknown."""
        return _read(self._pci_devices / pci_bus_id / "local_cpulist") or None

    def numa_node_of(self, cpus: str) -> int | None:
        """The NUMA node with just these CPUs, a list such as `0-23`; None if none is known."""
        for place in _entries(self._numa_nodes):
            node = _NUMA_NODE.fullmatch(place.name)
            if node and cpus and _read(place / "cpulist") == cpus:
                return int(node[1])
        return None

    def cpus_of(self, numa_node: int) -> str | None:
        """The CPUs of a NUMA node, as a list such as `0-23`; None if it has none."""
        return _read(self._numa_nodes / f"node{numa_node}" / "cpulist") or None

    def pcie_root(self, pci_bus_id: str) -> str | None:
        """The root complex of a PCI device, such as `pci0000:c0`; None if unknown."""
        device = self._pci_devices / pci_bus_id  # a link to its place; missing, it names no root
        parts = device.resolve().parts
        return next((part for part in parts if part.startswith("pci") and ":" in part), None)

    @property
    def _pci_devices(self) -> Path:
        return self.sysfs_root / "bus/pci/devices"

    @property
    def _numa_nodes(self) -> Path:
        return self.sysfs_root / "devices/system/node"

    # --- files -----------------------------------------------------------------------------------

    def nodes_in(self, folder: str) -> list[str]:
        """Names below /dev of the device nodes in a folder of it, ascending."""
        entries = sorted(_entries(self.dev_root / folder))
        names = (str(entry.relative_to(self.dev_root)) for entry in entries)
        return [name for name in names if stat.S_ISCHR(_mode(f"{self.dev_root}/{name}"))]

    def npu_nodes(self) -> frozenset[tuple[str, int]]:
        """Name and inode of each NPU's device node: an Ascend driver that starts makes new ones."""
        return self._nodes(_NPU_NODE)

    def vnpu_nodes(self) -> frozenset[tuple[str, int]]:
        """Name and inode of each vNPU's device node: they come and go with the vNPUs."""
        return self._nodes(_VNPU_NODE)

    def _nodes(self, kind: re.Pattern[str]) -> frozenset[tuple[str, int]]:
        try:
            with os.scandir(self.dev_root) as entries:
                return frozenset(
                    (entry.name, entry.inode()) for entry in entries if kind.fullmatch(entry.name)
                )
        except OSError:  # missing: has_node is then False for each
            return frozenset()

    # Texts rather than Paths: a CDI file asks some twenty times, and a Path costs more than a stat.

    def has_node(self, name: str) -> bool:
        """Whether /dev has a character device *name*."""
        mode = _mode(f"{self.dev_root}/{name}")
        return self._is_fit(f"/dev/{name}", mode, is_fit=stat.S_ISCHR(mode))

    def existing(self, *paths: str, of_any_kind: bool = False) -> frozenset[str]:
        """Those of *paths* that the host has; links on the way lead through the host's tree.

        Args:
            paths: A folder's ends with a slash; any other is that of a file.
            of_any_kind: Whether each may be a folder or a file.
        """
        root = str(self.host_root)

        def has(path: str) -> bool:
            place = resolve(root, path)
            mode = 0 if place is None else _mode(place)
            is_folder, is_file = stat.S_ISDIR(mode), stat.S_ISREG(mode)
            if of_any_kind:
                return self._is_fit(path, mode, is_fit=is_folder or is_file)
            return self._is_fit(path, mode, is_fit=is_folder if path.endswith("/") else is_file)

        return frozenset(path for path in paths if has(path))

    def _is_fit(self, path: str, mode: int, *, is_fit: bool) -> bool:
        """Pass on whether a path is of the right kind; note one that is there and is not."""
        note = self.unfit.discard if is_fit or not mode else self.unfit.add
        note(path)
        return is_fit


def _mode(path: str) -> int:
    """The mode of a file; 0 if it is missing or out of our reach: no container can get it then."""
    try:
        return os.stat(path).st_mode  # noqa: PTH116 - a text
    except (OSError, ValueError):
        return 0


def _entries(folder: Path) -> list[Path]:
    """The entries of a folder; none if it is missing."""
    try:
        return list(folder.iterdir())
    except OSError:  # missing: nodes without PCI, and families without this folder, have none
        return []


def _read(path: Path) -> str:
    """A sysfs attribute, empty when it is missing or unreadable."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):  # a fact that cannot be read is unknown, not an error
        return ""
