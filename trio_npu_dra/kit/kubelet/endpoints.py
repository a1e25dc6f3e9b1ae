"""The sockets of the driver's instances: their names, and the removal of those of the dead.

An instance has three sockets: the service socket that the kubelet calls, the registration socket by
which the kubelet finds it, and the control socket for people. Two instances run during a rolling
update, so each puts the UID of its pod into the names.

An instance that ends in order removes its sockets. After SIGKILL they stay, under names that no
later pod uses again, and the kubelet goes on calling the registration socket for half an hour. So
an instance that the kubelet has registered removes the registration sockets of all others, and
what nobody listens on. Service and control sockets lie in the driver's own folder, or under a
digest of its name beside it; the name of a registration socket follows from them.

A socket's path has at most 107 bytes, for the kubelet that connects too. The shortest names fit
wherever the kubelet's own `device-plugins/kubelet.sock` does: below a folder of 79 bytes.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.grpc import is_refused, is_socket, is_too_long

log = logging.getLogger(__name__)

KUBELET_SOCKET: Final = "kubelet.sock"
"""The name of the kubelet's own sockets, in its folders of device plugins and pod resources."""

_SERVICE: Final = "dra"
_CONTROL: Final = "control"
_SHORT: Final = 11  # letters of a digest of 8 bytes


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The sockets of one instance.

    Attributes:
        driver_name: As in DeviceClasses and ResourceSlices.
        plugin_directory: The driver's own folder in the kubelet's plugins folder.
        registrar_directory: Where the kubelet looks for registration sockets.
        pod_uid: UID of the instance's pod; None for an instance that is always alone.
    """

    driver_name: str
    plugin_directory: Path
    registrar_directory: Path
    pod_uid: str | None = None

    @property
    def service(self) -> Path:
        """The socket that the kubelet calls: `dra[-<pod UID>].sock` in the driver's folder."""
        return _named(self.plugin_directory, _SERVICE, self.pod_uid)

    @property
    def control(self) -> Path:
        """The socket for people: `control[-<pod UID>].sock` beside it."""
        return _named(self.plugin_directory, _CONTROL, self.pod_uid)

    @property
    def registration(self) -> Path:
        """The socket by which the kubelet finds the driver: `<driver>[-<pod UID>]-reg.sock`.

        Where that is too long, a digest stands for the UID, as in the kubeletplugin package of
        k8s.io/dynamic-resource-allocation, or for driver and UID.
        """
        key = _key(self.plugin_directory, self.pod_uid)
        forms = [f"-{key}", f"-{_short(key)}"] if key else [""]
        paths = [self.registrar_directory / f"{self.driver_name}{form}-reg.sock" for form in forms]
        both = f"{self.driver_name}\0{_short(key)}"
        shortest = self.registrar_directory / _digest(both, 7)
        return next((path for path in paths if not is_too_long(path)), shortest)

    def make_folder(self) -> None:
        """Make the driver's folder, unless the folder above it is missing: sockets say it better.

        Raises:
            StorageError: It cannot be made.
        """
        if self.plugin_directory.parent.is_dir():
            storage.make_folder(self.plugin_directory, mode=storage.PLUGIN_FOLDER_MODE)

    def others(self) -> list[Endpoints]:
        """Those of all other instances of which a service or control socket is there.

        Raises:
            StorageError: The folder cannot be read.
        """
        folder, kinds = self.plugin_directory, (_SERVICE, _CONTROL)
        found = set().union(*(_sockets(folder, kind).keys() for kind in kinds))
        return [replace(self, pod_uid=uid) for uid in found - {_key(folder, self.pod_uid) or None}]


def remove_replaced_sockets(ours: Endpoints) -> None:
    """Remove the registration sockets of all other instances, and sockets of killed ones."""
    try:
        for other in ours.others():
            if is_socket(other.registration):
                storage.remove(other.registration)
            dead = [path for path in (other.service, other.control) if is_refused(path)]
            for path in dead:
                storage.remove(path)
            if dead:
                said = {"pod_uid": other.pod_uid or "none"}
                log.warning("sockets of a killed instance removed", extra=said)
    except StorageError as error:
        log.warning("sockets of other instances cannot be removed", extra={"error": str(error)})


def device_plugin_socket(folder: Path, driver_name: str, resource: str) -> Path:
    """The socket of a resource, such as `vendor.com/device`: `<driver>_<resource>.sock`.

    Only one instance serves it at a time, so there is no UID in the name: the next instance
    replaces a socket that was left behind. *folder* is the kubelet's for device plugins.
    """
    path = folder / f"{driver_name}_{resource.replace('/', '_')}.sock"
    both = f"{driver_name}\0{resource}"
    return folder / f"dp{_digest(both, 7)}" if is_too_long(path) else path


def control_sockets(plugin_directory: Path) -> list[Path]:
    """The control sockets of all instances, living and killed, the oldest first.

    Raises:
        StorageError: The folder cannot be read.
    """
    made = []
    for path in _sockets(plugin_directory, _CONTROL).values():
        with suppress(FileNotFoundError):  # its instance has just ended
            made.append((path.lstat().st_mtime, path))
    return [path for _, path in sorted(made)]


def running_instances(plugin_directory: Path) -> tuple[str | None, ...]:
    """The pod UIDs of the instances that listen on their control sockets, or may do so.

    Raises:
        StorageError: The folder cannot be read.
    """
    found = _sockets(plugin_directory, _CONTROL)
    return tuple(uid for uid, path in found.items() if not is_refused(path))


def _sockets(folder: Path, kind: str) -> dict[str | None, Path]:
    """The sockets of one kind of a driver, by pod UID or its digest; none if there is no folder."""
    found = {}
    for place, start in ((folder, kind), (folder.parent, _shortest(folder, kind))):
        for path in storage.paths_in(place):
            uid = path.name.removesuffix(".sock").removeprefix(start).removeprefix("-") or None
            if path == _named(folder, kind, uid) and is_socket(path):
                found[uid] = path
    return found


def _named(folder: Path, kind: str, pod_uid: str | None) -> Path:
    key = _key(folder, pod_uid)
    path = folder / (f"{kind}-{key}.sock" if key else f"{kind}.sock")
    return folder.parent / f"{_shortest(folder, kind)}{key}" if is_too_long(path) else path


def _key(folder: Path, pod_uid: str | None) -> str:
    """What stands for an instance in the names of its sockets: the pod's UID, or its digest."""
    uid = pod_uid or ""
    return _short(uid) if is_too_long(folder / f"{_CONTROL}-{uid}.sock") else uid


def _short(uid: str) -> str:
    """The digest of a pod's UID; a digest, which the name of a socket tells, stays as it is."""
    return uid if len(uid) in {0, _SHORT} else _digest(uid, 8)


def _shortest(folder: Path, kind: str) -> str:
    """The begin of a socket's name beside the driver's folder, where other drivers' lie too."""
    return f"{kind[0]}{_digest(folder.name, 5)}"


def _digest(text: str, size: int) -> str:
    """The first *size* bytes of the SHA-256 of *text*, in letters that a file's name may have."""
    digest = hashlib.sha256(text.encode()).digest()[:size]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
