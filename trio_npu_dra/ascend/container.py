"""The device nodes and files that a container needs to use an NPU, by the chip's family."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from trio_npu_dra.ascend.host import MANAGER, Host
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.root_info import ROOT_INFO, gives_root_info
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.ascend.unified_bus import ub_files
from trio_npu_dra.kit.base.errors import HostFileMissing

_DEV: Final = "/dev/"
MOUNT_OPTIONS: Final = ("ro", "rbind", "rprivate")


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device: its path in the container, and where the container runtime finds it."""

    path: str
    host_path: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount: its path in the container, and where the container runtime finds it."""

    container_path: str
    host_path: str
    options: tuple[str, ...] = MOUNT_OPTIONS


def chip_nodes(host: Host, chip: Chip) -> tuple[DeviceNode, ...]:
    """The nodes of one chip.

    Raises:
        HostFileMissing: The host does not have it.
    """
    return (_required(host, f"davinci{chip.physical_id}"),)


def partition_nodes(host: Host, vnpu: int) -> tuple[DeviceNode, ...]:
    """The nodes of one vNPU, which is an NPU of its own for a container.

    Raises:
        HostFileMissing: The host does not have it.
    """
    return (replace(_required(host, f"vdavinci{vnpu}"), path=f"/dev/davinci{vnpu}"),)


def shared_nodes(host: Host, family: ChipFamily) -> tuple[DeviceNode, ...]:
    """The nodes that a container with any chip of *family* needs; those that exist.

    Raises:
        HostFileMissing: One is missing without which nothing works.
    """
    traits = TRAITS[family]
    for one_of in traits.needs:
        if one_of[0].startswith(_DEV):
            require(host, one_of)
    names = [name for name in traits.shared_nodes if host.has_node(name)]
    names += [name for folder in traits.node_folders for name in host.nodes_in(folder)]
    docker_manager = f"{MANAGER}_docker"
    manager = _node(MANAGER)
    if traits.has_docker_manager and host.has_node(docker_manager):
        manager = replace(manager, host_path=f"/dev/{docker_manager}")
    return (manager, *map(_node, names))


def driver_mounts(host: Host, family: ChipFamily) -> tuple[Mount, ...]:
    """Files of the Ascend driver, read-only; those that exist.

    Raises:
        HostFileMissing: One is missing without which nothing works.
    """
    traits = TRAITS[family]
    for one_of in traits.needs:
        if not one_of[0].startswith(_DEV):
            require(host, one_of)
    existing = host.existing(*traits.driver_paths)
    paths = (path.rstrip("/") for path in traits.driver_paths if path in existing)
    return tuple(Mount(container_path=path, host_path=path) for path in paths)


def require(host: Host, one_of: tuple[str, ...]) -> None:
    """Make sure that containers get one of the paths (`Traits.needs`).

    Raises:
        HostFileMissing: The host has none of them, nor does the operator add it.
    """
    if any(_has(host, path) for path in one_of):
        return
    path, kind = one_of[0], "a folder" if one_of[0].endswith("/") else "a file"
    if path.startswith(_DEV):
        path, kind = f"{path}*" if path.endswith("/") else path, "a character device"
    raise HostFileMissing(
        f"{path} is missing on the node, or is not {kind}: is the Ascend driver loaded?"
    )


def _has(host: Host, path: str) -> bool:
    if not path.startswith(_DEV):
        added = (f"{mount.container_path}/" for mount in extra_mounts(host))
        return bool(host.existing(path)) or any(map(path.startswith, added))
    name = path.removeprefix(_DEV)
    return bool(host.nodes_in(name)) if name.endswith("/") else host.has_node(name)


def root_info_mounts(
    host: Host, family: ChipFamily, physical_ids: Iterable[int]
) -> tuple[Mount, ...]:
    """HCCL's root info for a container with these chips, if the host has one that fits."""
    if not TRAITS[family].reads_root_info or not gives_root_info(host, physical_ids):
        return ()
    return (Mount(container_path=ROOT_INFO, host_path=ROOT_INFO),)


def ub_mounts(host: Host, family: ChipFamily) -> tuple[Mount, ...]:
    """The user space of the host's unified bus, read-only, for families that need it."""
    files = ub_files(host) if TRAITS[family].uses_unified_bus else ()
    return tuple(Mount(container_path=path, host_path=path) for path in files)


def extra_mounts(host: Host) -> tuple[Mount, ...]:
    """The paths that the operator adds, read-only; those that exist."""
    existing = host.existing(*(path for path, _ in host.extra_mounts), of_any_kind=True)
    return tuple(
        Mount(container_path=container_path, host_path=path)
        for path, container_path in host.extra_mounts
        if path in existing
    )


def _required(host: Host, name: str) -> DeviceNode:
    require(host, (f"{_DEV}{name}",))
    return _node(name)


def _node(name: str) -> DeviceNode:
    return DeviceNode(path=f"/dev/{name}", host_path=f"/dev/{name}")
