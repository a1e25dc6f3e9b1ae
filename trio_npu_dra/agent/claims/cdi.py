"""CDI files: what the container runtime adds to a container that uses a claim.

One file a claim, and device names that carry the claim's UID, so that a name is never used again
for something else and a runtime's cache cannot be wrong. A file can always be made anew from the
claim's record, which has the whole spec, so nothing of it is synced to the disk. What a power cut
leaves, perhaps an empty file, is put right or removed at our next start, before any claim is
prepared again; until then a runtime says in its log that it cannot read the file, and goes on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from pydantic_core import to_json

from trio_npu_dra.agent.claims import library_hook
from trio_npu_dra.agent.claims.driver_files import DriverFiles
from trio_npu_dra.agent.claims.library_hook import LibraryHook
from trio_npu_dra.agent.config.effective import DEFAULT_CONFIG
from trio_npu_dra.agent.config.model import ContainerLibraries
from trio_npu_dra.agent.holds.entry import Allocated, HeldDevice
from trio_npu_dra.ascend.container import DeviceNode, Mount
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import ForeignFile

_CDI_VERSION = "0.5.0"  # the lowest with hostPath and with names that start with a digit
_CLASS = "npu"
_MODE = 0o644
_TOPOLOGY = "HCCL_TOPO_FILE_PATH"
_NONE: Mapping[Any, Any] = MappingProxyType({})

_NPU_NODE = re.compile(r"/dev/davinci(\d+)")

T = TypeVar("T")
_Edits: TypeAlias = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """How containers find the Ascend driver's libraries.

    Attributes:
        path: Where they have them, as in LD_LIBRARY_PATH; empty does nothing for them.
        usual: What is done where no config says otherwise.
        hook: Makes loaders look there; without it LD_LIBRARY_PATH does, instead of the image's.
    """

    path: str
    usual: ContainerLibraries = "ldcache"
    hook: LibraryHook | None = None

    def edits(self, wanted: ContainerLibraries | None) -> _Edits:
        """What is done if a config wants this; None says nothing."""
        folders = [folder for folder in self.path.split(":") if folder]
        how = wanted or self.usual
        if not folders or how == "none":
            return {}
        if how == "ldcache" and self.hook:
            return {"hooks": [self.hook.edits(folders)]}
        return {"env": [f"LD_LIBRARY_PATH={self.path}"]}


def device_name(uid: str, device: str, share_id: str | None = None) -> str:
    """The CDI name of a device of the claim *uid*, or of one of its shares of the device.

    The kubelet tells the health of what has one name once.
    """
    return f"{uid}-{device}" if share_id is None else f"{uid}-{device}-{share_id}"


def render_spec(
    uid: str,
    devices: Sequence[HeldDevice],
    *,
    driver_name: str,
    shared_nodes: Iterable[DeviceNode],
    driver_mounts: Mapping[ChipFamily, Iterable[Mount]],
    extra_mounts: Iterable[Mount],
    libraries: Libraries,
    ub_mounts: Mapping[ChipFamily, Iterable[Mount]] = _NONE,
    topology_files: Mapping[str, str] = _NONE,
    allocation: Iterable[Allocated] = (),
) -> dict[str, Any]:
    """Make the CDI spec of a claim (pure): equal input gives an equal spec.

    What configs say is said once for the claim as far as it is equal for all devices, else by each
    device: so a container gets what the configs of its own devices say.

    Args:
        uid: The claim.
        devices: What it has, one device at least, none twice.
        driver_name: The vendor of the CDI kind.
        shared_nodes: Device nodes that a container needs besides those of its NPUs.
        driver_mounts: Files of the Ascend driver, by family.
        extra_mounts: What is mounted besides, whatever the configs say.
        libraries: How containers find the Ascend driver's libraries.
        ub_mounts: Files of the unified bus, by family.
        topology_files: Paths of the topology that HCCL needs, by device.
        allocation: Tells the shares that the claim has of devices, which have a name each.
    """
    shares: dict[str, dict[str | None, None]] = {}
    for given in allocation:
        shares.setdefault(given.device, {})[given.share_id] = None
    basis: _Edits = {
        "env": [f"ASCEND_VISIBLE_DEVICES={_visible_devices(devices)}"],
        "deviceNodes": [_node(node.path, node.host_path) for node in shared_nodes],
    }
    configured = [
        _configured(device, libraries, driver_mounts, ub_mounts, topology_files)
        for device in devices
    ]
    parts = [*zip(*configured, strict=True)]  # each for all devices
    common = [part[0] if part.count(part[0]) == len(devices) else {} for part in parts]
    extra: _Edits = {"mounts": [_mount(mount) for mount in extra_mounts]}
    return {
        "cdiVersion": _CDI_VERSION,
        "kind": f"{driver_name}/{_CLASS}",
        "containerEdits": _joined(basis, *common, extra),
        "devices": [
            {
                "name": device_name(uid, device.device, share_id),
                "containerEdits": _joined(
                    {"deviceNodes": [_node(*paths) for paths in device.nodes.items()]},
                    *(own for own, all_ in zip(of_device, common, strict=True) if own != all_),
                ),
            }
            for device, of_device in zip(devices, configured, strict=True)
            for share_id in shares.get(device.device, (None,))
        ],
    }


def _visible_devices(devices: Iterable[HeldDevice]) -> str:
    """What ASCEND_VISIBLE_DEVICES is to say, which is one thing for all devices of a claim.

    An Ascend container runtime below us takes the last assignment: with "void" it adds nothing to
    what the claim gives, whatever the image says.
    """
    if any((device.config or DEFAULT_CONFIG).visible_devices == "void" for device in devices):
        return "void"
    return ",".join(map(str, sorted(_numbers(node for device in devices for node in device.nodes))))


def _configured(
    device: HeldDevice,
    libraries: Libraries,
    driver_mounts: Mapping[ChipFamily, Iterable[Mount]],
    ub_mounts: Mapping[ChipFamily, Iterable[Mount]],
    topology_files: Mapping[str, str],
) -> tuple[_Edits, ...]:
    """What the config of a device says, in parts that are looked at by themselves."""
    config, family = device.config or DEFAULT_CONFIG, device.family
    files = driver_mounts[family] if config.driver_mounts and family else ()
    of_bus = ub_mounts.get(family, ()) if config.ub_files and family else ()
    # The file is one of the Ascend driver's; and the config's own word counts.
    topology = topology_files.get(device.device) if config.driver_mounts else None
    is_ours = topology is not None and _TOPOLOGY not in dict(config.env)
    return (
        libraries.edits(config.container_libraries),
        {"env": [f"{_TOPOLOGY}={topology}"] if is_ours else []},
        {"env": [f"{name}={value}" for name, value in config.env]},
        {"mounts": [_mount(mount) for mount in (*files, *of_bus)]},
    )


def _joined(*parts: _Edits) -> _Edits:
    """All of several edits, without empty lists, which CDI does not know."""
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
class CdiFolder:
    """The CDI files of this driver in one folder.

    Attributes:
        root: The folder; made when missing. It belongs to the node, other drivers write there too.
        driver_name: The vendor of the CDI kind, and the start of our files' names.
        host: Tells what a container needs besides its NPUs, anew for each file.
        libraries: How containers find the Ascend driver's libraries.
    """

    root: Path
    driver_name: str
    host: Host
    libraries: Libraries

    def device_id(self, uid: str, device: str, share_id: str | None = None) -> str:
        """The qualified CDI name that the kubelet hands to the runtime."""
        return f"{self.driver_name}/{_CLASS}={device_name(uid, device, share_id)}"

    def write(self, uid: str, spec: Mapping[str, Any]) -> bool:
        """Make the file say what it should, ours and for all to read; a right one is left alone.

        Returns:
            Whether the file was missing or wrong.

        Raises:
            StorageError: The disk is full, read-only, or fails.
        """
        content = to_json(spec) + b"\n"
        path = self.path(uid)
        if storage.holds(path, content, mode=_MODE):
            return False
        self._make_root()
        storage.write_atomic(path, content, mode=_MODE, sync=False)
        return True

    def hands_out(self, uid: str, nodes: Collection[str]) -> bool:
        """Whether the file of the claim *uid*, whole or not, names one of the host's *nodes*.

        Raises:
            StorageError: It exists and the disk does not give it.
        """
        try:
            content = storage.read_bytes(self.path(uid), any_owner=True) or b""
        except ForeignFile:
            return False
        return any(f'"{node}"'.encode() in content for node in nodes)

    def remove(self, uid: str) -> None:
        """Remove the file of a claim; a missing one is fine.

        Raises:
            StorageError: It cannot be removed.
        """
        storage.remove(self.path(uid))

    def scan(self) -> dict[str, bool]:
        """The claims that have a file, by UID: whether it has the form that `write` gives it.

        That is a regular file, its owner and its mode. What it says is not read.

        Raises:
            StorageError: The folder cannot be read.
        """
        prefix, suffix = self._prefix, ".json"
        found: dict[str, bool] = {}
        with storage.translated(f"read {self.root}"):
            try:
                paths = list(self.root.iterdir())
            except FileNotFoundError:
                return {}
            for path in paths:
                if path.name.startswith(prefix) and path.name.endswith(suffix):
                    uid = path.name.removeprefix(prefix).removesuffix(suffix)
                    with suppress(FileNotFoundError):  # another instance has just removed it
                        found[uid] = storage.has_form(path.lstat(), mode=_MODE)
        return found

    def remove_unfinished(self) -> None:
        """Remove what killed writers left of files.

        Raises:
            StorageError: The folder cannot be read.
        """
        storage.remove_unfinished(self.root, self._prefix)
        library_hook.remove_unfinished(self.root, self.driver_name)

    def install_hook(self) -> None:
        """Put the program there that the files name, if it is missing or wrong.

        Raises:
            StorageError: It cannot be written, or could not be executed.
        """
        if self.libraries.hook is not None:
            self.libraries.hook.install()

    def remove_unused_hooks(self, specs: Iterable[Mapping[str, Any] | None]) -> None:
        """Remove other versions' programs that neither a file nor one of *specs* names.

        Raises:
            StorageError: The disk does not give the files.
        """
        programs = library_hook.others(self.root, self.driver_name, self.libraries.hook)
        if programs:
            paths = [self.devices_path, *(self.path(uid) for uid in self.scan())]
            files = (storage.read_bytes(path, any_owner=True) for path in paths)
            named_in = [*(to_json(spec) for spec in specs), *(text or b"" for text in files)]
            library_hook.remove_unused(programs, named_in)

    @property
    def devices_path(self) -> Path:
        """The file of a device plugin's devices (`device_plugin.cdi_file`)."""
        return self.root / f"{self.driver_name}-device.json"

    def path(self, uid: str) -> Path:
        """The file of a claim."""
        return self.root / f"{self._prefix}{uid}.json"

    @property
    def _prefix(self) -> str:
        return f"{self.driver_name}-{_CLASS}_"

    def _make_root(self) -> None:
        with storage.translated(f"make {self.root}"):
            self.root.mkdir(parents=True, exist_ok=True)

    def render(
        self,
        uid: str,
        devices: Sequence[HeldDevice],
        facts: DriverFiles | None = None,
        *,
        allocation: Iterable[Allocated] = (),
    ) -> dict[str, Any]:
        """What the file of a claim is to say.

        Args:
            uid: The claim.
            devices: What it has; of families that are known.
            facts: What was found out of the host; without it the host is looked at now.
            allocation: How the claim has the devices; without it, each as a whole.

        Raises:
            DeviceNodeMissing: A device node of the Ascend driver is missing on the host.
        """
        facts = facts or DriverFiles(self.host)
        families = list(dict.fromkeys(device.family for device in devices if device.family))
        chips = _numbers(node for device in devices for node in device.held_nodes)
        return render_spec(
            uid,
            devices,
            driver_name=self.driver_name,
            shared_nodes=_once(node for family in families for node in facts.nodes(family)),
            driver_mounts={
                family: (*facts.mounts(family), *facts.root_info(family, chips))
                for family in families
            },
            ub_mounts={family: facts.ub_mounts(family) for family in families},
            topology_files={
                device.device: path
                for device in devices
                for chip in device.chips[:1]
                if (path := facts.topology_file(chip)) is not None
            },
            extra_mounts=facts.extra_mounts(),
            libraries=self.libraries,
            allocation=allocation,
        )


def _numbers(nodes: Iterable[str]) -> set[int]:
    """N of each `/dev/davinciN`: on the host a chip's physical id."""
    return {int(found[1]) for found in map(_NPU_NODE.fullmatch, nodes) if found}


def _once(items: Iterable[T]) -> Sequence[T]:
    return list(dict.fromkeys(items))
