"""The files that an installed Ascend driver and its cards add to a host, in a folder of our own."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from trio_npu_dra.lab.simulator.build import (
    LIBRARY,
    LIBRARY_OF_950,
    NPU_SMI,
    NPU_SMI_OF_950,
)
from trio_npu_dra.lab.simulator.profile import DeviceFacts, Profile

DRIVER = Path("usr/local/Ascend/driver")
DRIVER_TOOLS = DRIVER / "tools"
DCMI = Path("usr/local/dcmi")
TOOLS = Path("usr/local/bin")
STATE_IN_DEV = "npu_board.state"
"""The state file's second name in the dev folder (`BOARD_DEV_LINK` in `state.h`)."""

_TOPOLOGIES_OF_950 = (  # MindCluster's names; what is in the files is not simulated
    *("atlas_350_1", "atlas_350_3", "atlas_850_1", "atlas_850_2", "atlas_850_3"),
    *("atlas_950_1", "atlas_950_2"),
)
_NULL_DEVICE = os.makedev(1, 3)
_ACCELERATOR_CLASS = "0x120000"  # PCI: processing accelerator


def install_driver(root: Path, binaries: Path, profile: Profile, state_file: str) -> None:
    """Put library, tools and version file where the vendor's installer puts them."""
    driver = root / DRIVER
    for folder in ("lib64/common", "lib64/driver", "include", "tools"):
        (driver / folder).mkdir(parents=True, exist_ok=True)
    (root / TOOLS).mkdir(parents=True, exist_ok=True)
    (root / DCMI).mkdir(parents=True, exist_ok=True)
    # A copy, not a link: the loader takes two boards' libraries with one inode for one library.
    is_first = profile.generation == 1
    library, npu_smi = (LIBRARY, NPU_SMI) if is_first else (LIBRARY_OF_950, NPU_SMI_OF_950)
    _copy(binaries / library, driver / "lib64" / LIBRARY)
    _copy(binaries / npu_smi, root / TOOLS / NPU_SMI)
    _link(root / DRIVER_TOOLS / state_file, Path("../lib64") / state_file)
    # A relative link, so that it also leads to the library, and so to the state, in a container.
    _link(root / DCMI / LIBRARY, Path("../Ascend/driver/lib64") / LIBRARY)
    if profile.generation == 2:
        topologies = driver / "topo/950"
        topologies.mkdir(parents=True, exist_ok=True)
        for name in _TOPOLOGIES_OF_950:
            (topologies / f"{name}.json").write_text("{}\n")
    version = profile.driver_version
    (driver / "version.info").write_text(f"Version={version}\npackage_version={version}\n")


def make_device_nodes(dev: Path, profile: Profile, state_file: Path) -> None:
    """Make the nodes of all chips and of the Ascend driver, and another name for the state file.

    The nodes are null devices where this process may make nodes, otherwise links to `/dev/null`.
    """
    dev.mkdir(parents=True, exist_ok=True)
    chips = [f"davinci{device.physical_id}" for device in profile.devices]
    for name in (*chips, *profile.shared_nodes):
        _make_node(dev / name)
    link = dev / STATE_IN_DEV
    link.unlink(missing_ok=True)
    link.hardlink_to(state_file)


def make_pci_devices(sysfs: Path, profile: Profile) -> None:
    """Make the PCI functions of the chips that have one; chips that share it share the folder."""
    devices = sysfs / "bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    for device in profile.devices:
        if not device.pci:
            continue
        place = Path("devices") / device.pci_root_port / device.pci
        _write_attributes(sysfs / place, device, profile)
        _link(devices / device.pci, Path("../../..") / place)


def make_unified_bus(sysfs: Path, profile: Profile) -> None:
    """Make the class of the unified bus (UB) where chips are on it, not on PCI."""
    if profile.generation == 2 and not all(device.pci for device in profile.devices):
        (sysfs / "class/unified_bus").mkdir(parents=True, exist_ok=True)


def make_numa_nodes(sysfs: Path, profile: Profile) -> None:
    """Make the NUMA nodes whose CPUs are known."""
    for number, cpus in profile.cpus.items():
        node = sysfs / "devices/system/node" / f"node{number}"
        node.mkdir(parents=True, exist_ok=True)
        (node / "cpulist").write_text(f"{cpus}\n")


def _write_attributes(folder: Path, device: DeviceFacts, profile: Profile) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ids = profile.pci
    attributes = {
        "vendor": f"{ids.vendor:#06x}",
        "device": f"{ids.device:#06x}",
        "subsystem_vendor": f"{ids.subvendor:#06x}",
        "subsystem_device": f"{ids.subdevice:#06x}",
        "class": _ACCELERATOR_CLASS,
        "numa_node": str(-1 if device.numa_node is None else device.numa_node),
    }
    if device.numa_node in profile.cpus:
        attributes["local_cpulist"] = profile.cpus[device.numa_node]
    for name, value in attributes.items():
        (folder / name).write_text(f"{value}\n")


def _make_node(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, _NULL_DEVICE)
    except PermissionError:
        path.symlink_to(os.devnull)
    else:
        path.chmod(0o666)  # mknod's mode was narrowed by the umask


def _copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
