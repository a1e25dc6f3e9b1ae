"""Paths of a node's files and sockets: on the node itself, or in the driver's pod."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trio_npu_dra.ascend import host_path
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.grpc import is_refused, is_socket
from trio_npu_dra.tools.doctor.finding import Finding, not_checked

FILE_LIMIT = 1 << 24
"""Bytes of a file that we did not write; a kubelet's checkpoint has some KB for each pod."""


OUT_OF_REACH = "Run it as root, on the node or in the driver's pod."
"""What to do about a file that we may not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The places that an examination looks at.

    Attributes:
        host: The host's root, /dev and /sys.
        driver_name: This driver's name.
        plugins: The kubelet's folder of plugins.
        registrations: The kubelet's folder of registration sockets.
        device_plugins: The kubelet's folder of device plugins.
        cdi: The folder with this driver's CDI files.
    """

    host: Host
    driver_name: str
    plugins: Path
    registrations: Path
    device_plugins: Path
    cdi: Path

    @property
    def state(self) -> Path:
        """This driver's own folder."""
        return self.plugins / self.driver_name

    @property
    def cdi_on_host(self) -> str:
        """The folder with this driver's CDI files, as the container runtime knows it."""
        if self.cdi.is_relative_to(self.host.host_root):
            return f"/{self.cdi.relative_to(self.host.host_root)}"
        return str(self.cdi)  # mounted where it is on the host

    @property
    def processes(self) -> Path:
        """The host's processes; missing where the host's root has no /proc."""
        return self.host.host_root / "proc"

    def on_host(self, path: str) -> Path | None:
        """Our path of a host file; None if it is missing."""
        found = host_path.resolve(str(self.host.host_root), path)
        return None if found is None else Path(found)

    def read(self, path: str) -> bytes | None:
        """A host file; None if it is missing.

        Raises:
            StorageError: It cannot be read.
        """
        place = self.on_host(path)
        return None if place is None else read(place)


def read(path: Path) -> bytes | None:
    """A file; None if it is missing.

    Raises:
        StorageError: It cannot be read.
    """
    return storage.read_bytes(path, limit=FILE_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A unix socket in a folder.

    Attributes:
        name: Of its file.
        listens: False if certainly no process listens.
    """

    name: str
    listens: bool


def inside(folder: Path) -> list[Path]:
    """What a folder has, by name.

    Raises:
        StorageError: The folder is missing, or we may not look into it.
    """
    with storage.translated(f"read {folder}"):
        if os.path.lexists(folder) and not os.access(folder, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return sorted(folder.iterdir())


def sockets_in(folder: Path) -> tuple[Socket, ...]:
    """The sockets of a folder, by name.

    Raises:
        StorageError: The folder is missing, or we may not look into it.
    """
    return tuple(
        Socket(name=path.name, listens=not is_refused(path))
        for path in inside(folder)
        if is_socket(path)
    )


def live_in(folder: Path) -> tuple[str, ...]:
    """Names of the sockets of a folder on which a process listens; none if it cannot be read."""
    try:
        return tuple(socket.name for socket in sockets_in(folder) if socket.listens)
    except StorageError:
        return ()


def not_read(error: StorageError) -> Finding:
    """A check for which something could not be read, and what would let it."""
    if isinstance(error.__cause__, FileNotFoundError):
        return not_checked(
            str(error),
            "Is this a node with a kubelet, and are its folders mounted here? If they are "
            "elsewhere, flags say where (npu-dra doctor --help).",
        )
    return not_checked(str(error), OUT_OF_REACH)


def listed(names: Iterable[str]) -> str:
    """Names for people: `a, b and c`."""
    words = list(names)
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
