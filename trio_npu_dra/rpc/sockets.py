"""Listening sockets: their names, their limits, and whose file it is."""

from __future__ import annotations

import base64
import errno
import hashlib
import logging
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.errors import ConfigError, StorageError

log = logging.getLogger(__name__)

UNIX_PATH_LIMIT = 107
"""Bytes of a unix socket's path: `sun_path` has 108, and Go keeps one for the final NUL."""

BACKLOG = 128


def service_socket(plugins_directory: Path, driver: str, pod_uid: str | None = None) -> Path:
    """Where the kubelet calls the driver: `<plugins directory>/<driver>/dra[-<pod UID>].sock`."""
    return plugins_directory / driver / (f"dra-{pod_uid}.sock" if pod_uid else "dra.sock")


def service_sockets(plugins_directory: Path, driver: str) -> dict[str | None, Path]:
    """The service sockets of all instances of the driver that are, or were, by pod UID.

    Raises:
        StorageError: The driver's folder cannot be read.
    """
    folder = plugins_directory / driver
    try:
        found = [path for path in folder.glob("dra*.sock") if path.is_socket()]
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error.strerror}") from error
    by_uid = {path.stem.removeprefix("dra").removeprefix("-") or None: path for path in found}
    return {
        uid: path
        for uid, path in by_uid.items()
        if path == service_socket(plugins_directory, driver, uid)
    }


def registration_socket(registrar_directory: Path, driver: str, pod_uid: str | None = None) -> Path:
    """Where the kubelet finds the driver: `<registrar directory>/<driver>[-<pod UID>]-reg.sock`.

    A name with a UID may be too long for a socket. Then a digest stands for the UID, or for both,
    as in the kubeletplugin package of k8s.io/dynamic-resource-allocation. (That one also takes a
    path of 108 bytes, to which it then cannot listen; we go on to the next form.)
    """
    if not pod_uid:
        return registrar_directory / f"{driver}-reg.sock"
    both = "\0".join((driver, pod_uid))
    forms = (
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{_digest(pod_uid, 8)}-reg.sock",
        f"dra-{_digest(both, 16)}-reg.sock",
    )
    paths = [registrar_directory / form for form in forms]
    return next((path for path in paths if _length(path) <= UNIX_PATH_LIMIT), paths[-1])


def is_refused(path: Path) -> bool:
    """Whether nobody listens on a unix socket, for certain.

    What is no socket, and what cannot be asked, tell nothing; nor does a path that no socket can
    have.
    """
    if _length(path) > UNIX_PATH_LIMIT or not _is_socket(path):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        return probe.connect_ex(os.fspath(path)) == errno.ECONNREFUSED


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that listens.

    Attributes:
        socket: Bound and listening; the peer may connect already.
        path: Its file, `None` for TCP.
        inode: The number of that file: a successor may have put its own in the same place.
    """

    socket: socket.socket
    path: Path | None = None
    inode: int = 0

    def withdraw(self) -> None:
        """Remove the file, unless it is another's by now; connections stay.

        A file that cannot be removed is refused to who connects once the socket is closed, and the
        next instance removes it (`kubelet.stale_sockets`).
        """
        if self.path is None or _inode(self.path) != self.inode:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot remove the socket %s: %s", self.path, error.strerror)
        else:
            reached(Point.STOP_SOCKET_REMOVED)


def listen_unix(path: Path) -> Listener:
    """Listen on a unix socket that only this user may connect to.

    A socket that an earlier process left behind is replaced.

    Args:
        path: Absolute, at most `UNIX_PATH_LIMIT` bytes; its folder must exist.

    Raises:
        ConfigError: The path is too long, its folder is missing or it is no socket's.
        StorageError: The file system refuses.
    """
    _check_length(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with _translated(path):
            _remove_stale(path)
            listener.bind(os.fspath(path))
            path.chmod(0o600)
            listener.listen(BACKLOG)
            return Listener(listener, path, path.stat().st_ino)
    except BaseException:
        listener.close()
        raise


def listen_tcp(port: int, *, host: str = "") -> Listener:
    """Listen on a TCP port, of both IP families when *host* is empty and the system has both.

    Args:
        port: 0 lets the system choose.
        host: An IPv4 address, or empty for all addresses.

    Raises:
        ConfigError: The port is taken or not allowed.
    """
    both = not host and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if both else socket.AF_INET,
            backlog=BACKLOG,
            dualstack_ipv6=both,
        )
    except OSError as error:
        raise ConfigError(f"cannot listen on TCP port {port}: {error.strerror}") from error
    listener.setblocking(False)
    return Listener(listener)


def _digest(text: str, size: int) -> str:
    """The first *size* bytes of the SHA-256 of *text*, in letters that a file's name may have."""
    digest = hashlib.sha256(text.encode()).digest()[:size]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _length(path: Path) -> int:
    return len(os.fsencode(path))


def _check_length(path: Path) -> None:
    length = _length(path)
    if length > UNIX_PATH_LIMIT:
        raise ConfigError(
            f"socket path {path} has {length} bytes, a unix socket's may have {UNIX_PATH_LIMIT}: "
            "choose a shorter directory or driver name"
        )


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} is to be a socket, but something else is there: remove it")
    path.unlink()


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(
            f"cannot create socket {path}: directory {path.parent} does not exist; "
            "is the kubelet's directory mounted there?"
        ) from error
    except OSError as error:
        raise StorageError(f"cannot create socket {path}: {error.strerror}") from error
