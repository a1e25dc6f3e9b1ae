"""What the CDI files of claims say: the device nodes, mounts, variables and hooks of containers."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from trio_npu_dra.agent.config.model import ContainerLibraries
from trio_npu_dra.agent.handout import library_hook
from trio_npu_dra.agent.handout.library_hook import LibraryHook
from trio_npu_dra.agent.holds.entry import Allocated, Entry, HeldDevice
from trio_npu_dra.ascend.container import (
    Mount,
    driver_mounts,
    extra_mounts,
    root_info_mounts,
    shared_nodes,
    ub_mounts,
)
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.unified_bus import topology_file
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.cdi import CdiFiles, Edits
from trio_npu_dra.kit.base.device_metadata import Documents, MetadataFiles
from trio_npu_dra.kit.base.errors import ForeignFile

_TOPOLOGY = "HCCL_TOPO_FILE_PATH"
_NPU_NODE = re.compile(r"/dev/davinci(\d+)")


@dataclass(frozen=True, slots=True)
class Libraries:
    """How containers find the Ascend driver's libraries.

    Attributes:
        path: The folders in a container, as in LD_LIBRARY_PATH; empty leaves containers alone.
        usual: The way where no config names another.
        hook: Puts the folders into the container's ld.so.cache; without it, LD_LIBRARY_PATH names
            them and replaces the image's.
    """

    path: str
    usual: ContainerLibraries = "ldcache"
    hook: LibraryHook | None = None

    def edits(self, wanted: ContainerLibraries | None) -> Edits:
        """The edits where a config asks for *wanted*; None is a config that says nothing."""
        folders = [folder for folder in self.path.split(":") if folder]
        how = wanted or self.usual
        if not folders or how == "none":
            return {}
        if how == "ldcache" and self.hook:
            return {"hooks": [self.hook.edits(folders)]}
        return {"env": [f"LD_LIBRARY_PATH={self.path}"]}


class DriverFiles:
    """What containers need besides their NPUs; asks the host once for each family.

    `nodes` and `mounts` raise HostFileMissing where the host lacks what every container needs.
    """

    def __init__(self, host: Host) -> None:
        self.nodes = cache(partial(shared_nodes, host))
        self.mounts = cache(partial(driver_mounts, host))
        self.ub_mounts = cache(partial(ub_mounts, host))
        self.extra_mounts = cache(partial(extra_mounts, host))
        self.root_info = partial(root_info_mounts, host)
        self.topology_file = partial(topology_file, host)


def _visible_devices(devices: Iterable[HeldDevice]) -> str:
    """The one value of ASCEND_VISIBLE_DEVICES for all devices of a claim."""
    if any(device.config.visible_devices == "void" for device in devices):
        # An Ascend container runtime below us takes the last assignment, so this one overrides the
        # image's: the runtime adds nothing to what the claim gives.
        return "void"
    return ",".join(map(str, sorted(_numbers(node for device in devices for node in device.nodes))))


def _joined(*parts: Edits) -> Edits:
    """Join edits; leave out empty lists, which CDI forbids."""
    kinds = ("env", "deviceNodes", "mounts", "hooks")
    whole = {kind: [one for part in parts for one in part.get(kind, ())] for kind in kinds}
    return {kind: ones for kind, ones in whole.items() if ones}


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "hostPath": mount.host_path,
        "containerPath": mount.container_path,
        "options": list(mount.options),
    }


def _node(path: str, host_path: str) -> dict[str, Any]:
    # On the host the nodes are 0660 of the driver's own user: a container's process of another uid,
    # or root without CAP_DAC_OVERRIDE, could not open them.
    return {
        "path": path,
        "hostPath": host_path,
        "type": "c",
        "permissions": "rwm",
        "fileMode": 0o666,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiFolder(CdiFiles):
    """The CDI files of this driver in one folder, and the metadata that they bring to containers.

    Attributes:
        host: The host whose files and device nodes containers get.
        libraries: How containers find the Ascend driver's libraries.
        metadata: The files with the metadata of devices.
    """

    device_class: str = "npu"
    host: Host
    libraries: Libraries
    metadata: MetadataFiles

    def hands_out(self, uid: str, nodes: Collection[str]) -> bool:
        """Whether a claim's file, whole or damaged, names one of the host's *nodes*.

        Raises:
            StorageError: The file exists and cannot be read.
        """
        try:
            content = storage.read_bytes(self.path(uid)) or b""
        except ForeignFile:
            return False
        return any(f'"{node}"'.encode() in content for node in nodes)

    def write_all(self, entry: Entry) -> bool:
        """Write the files of a claim: first those that its CDI file mounts.

        Returns:
            Whether the CDI file was missing or wrong.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        assert entry.edits is not None, "the caller has looked"
        self.metadata.write(entry.uid, entry.metadata)
        return self.write(entry.uid, entry.edits)

    def remove(self, uid: str) -> None:
        """Remove the files of a claim if they exist: last those that its CDI file mounts.

        Raises:
            StorageError: The disk refuses.
        """
        CdiFiles.remove(self, uid)
        self.metadata.remove(uid)

    def remove_unfinished(self) -> None:
        """Remove the temporary files of killed writers.

        Raises:
            StorageError: A folder cannot be read.
        """
        CdiFiles.remove_unfinished(self)
        storage.remove_unfinished(self.root, library_hook.prefix(self.driver_name))

    def remove_unused_hooks(self, specs: Iterable[Mapping[str, Any] | None]) -> None:
        """Remove other versions' programs, unless a file or one of *specs* names them.

        Raises:
            StorageError: A file cannot be read.
        """
        programs = library_hook.other_programs(self.root, self.driver_name, self.libraries.hook)
        if not programs:
            return
        paths = [self.devices_path, *(self.path(uid) for uid in self.scan())]
        files = (storage.read_bytes(path) for path in paths)
        texts = [*(to_json(spec) for spec in specs), *(text or b"" for text in files)]
        for program in programs:
            if not any(program.name.encode() in text for text in texts):
                storage.remove(program)

    @property
    def devices_path(self) -> Path:
        """The one file of a device plugin's devices (`device_plugin.cdi_file`)."""
        return self.root / f"{self.driver_name}-device.json"

    def as_now(self, entry: Entry, files: DriverFiles) -> Entry:
        """The entry with the edits of now; as it is, if they are the same.

        Raises:
            HostFileMissing: The host lacks what its containers need.
        """
        edits = self.render(
            entry.uid, entry.devices, files, allocation=entry.allocation, metadata=entry.metadata
        )
        return entry if edits == entry.edits else replace(entry, edits=edits)

    def render(
        self,
        uid: str,
        devices: Sequence[HeldDevice],
        files: DriverFiles | None = None,
        *,
        allocation: Iterable[Allocated] = (),
        metadata: Documents | None = None,
    ) -> dict[str, Any]:
        """Make the CDI spec of a claim: equal input gives an equal spec.

        What all devices have in common stands once, for the claim; the rest stands with each
        device. So a container gets what the configs of its own devices say.

        Args:
            uid: The claim.
            devices: Its devices, at least one and none twice.
            files: What the host has; without it the host is asked now.
            allocation: The claim's shares of devices, each with a name of its own; without it, the
                claim has each device as a whole.
            metadata: What its containers can read, by request.

        Raises:
            HostFileMissing: The host lacks what its containers need.
        """
        files = files or DriverFiles(self.host)
        families = dict.fromkeys(device.family for device in devices)
        shared_nodes = dict.fromkeys(node for family in families for node in files.nodes(family))
        chips = _numbers(node for device in devices for node in device.held_nodes)
        configured = [self._configured(device, chips, files) for device in devices]
        parts = [*zip(*configured, strict=True)]  # each part of all devices
        common = [part[0] if part.count(part[0]) == len(devices) else {} for part in parts]
        # A container has all devices of a request, so the first of them brings the file. The file
        # has no CDI device of its own: an earlier version of the driver, which knows no metadata,
        # would render the claim without it, and a container that restarts then asks for it.
        not_brought = dict(metadata or {})
        shares: dict[str, dict[str | None, list[Edits]]] = {}
        for given in allocation:
            files_of_requests = shares.setdefault(given.device, {}).setdefault(given.share_id, [])
            for request in given.requests:
                if (document := not_brought.pop(request, None)) is not None:
                    files_of_requests.append(self.metadata.edits(uid, request, document))
        return self.spec(
            {
                self.device_name(uid, device.device, share_id): _joined(
                    {"deviceNodes": [_node(*paths) for paths in device.nodes.items()]},
                    *(own for own, all_ in zip(of_device, common, strict=True) if own != all_),
                    *files_of_requests,
                )
                for device, of_device in zip(devices, configured, strict=True)
                for share_id, files_of_requests in shares.get(device.device, {None: []}).items()
            },
            _joined(
                {
                    "env": [f"ASCEND_VISIBLE_DEVICES={_visible_devices(devices)}"],
                    "deviceNodes": [_node(node.path, node.host_path) for node in shared_nodes],
                },
                *common,
                {"mounts": [_mount(mount) for mount in files.extra_mounts()]},
            ),
        )

    def _configured(
        self,
        device: HeldDevice,
        chips: Iterable[int],
        files: DriverFiles,
    ) -> tuple[Edits, ...]:
        """The edits that a device's config asks for, in parts that are compared one by one."""
        config, family = device.config, device.family
        driver_files: tuple[Mount, ...] = ()
        if config.driver_mounts:
            driver_files = (*files.mounts(family), *files.root_info(family, chips))
        bus_files = files.ub_mounts(family) if config.ub_files else ()
        topology = None
        # The file is one of the Ascend driver's, and a variable of the config overrides ours.
        if config.driver_mounts and _TOPOLOGY not in dict(config.env):
            topology = files.topology_file(device.chips[0])
        return (
            self.libraries.edits(config.container_libraries),
            {"env": [f"{_TOPOLOGY}={topology}"] if topology is not None else []},
            {"env": [f"{name}={value}" for name, value in config.env]},
            {"mounts": [_mount(mount) for mount in (*driver_files, *bus_files)]},
        )


def _numbers(nodes: Iterable[str]) -> set[int]:
    """N of each `/dev/davinciN`: on the host a chip's physical id."""
    return {int(found[1]) for found in map(_NPU_NODE.fullmatch, nodes) if found}
