"""Listening sockets: their limits, and the owner of the file."""

import errno
import logging
import os
import socket
import stat
from pathlib import Path
from typing import NamedTuple

from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import ConfigError

log = logging.getLogger(__name__)

UNIX_PATH_LIMIT = 107
"""Bytes of a unix socket's path: `sun_path` has 108, and Go keeps one for the final NUL."""

BACKLOG = 128


def is_too_long(path: Path) -> bool:
    """Whether no unix socket can have this path."""
    return _length(path) > UNIX_PATH_LIMIT


def is_socket(path: Path) -> bool:
    """Whether a path is a unix socket's; a link to one is not."""
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:  # missing, or out of our reach: nothing that we could ask or remove
        return False


def is_refused(path: Path) -> bool:
    """Whether it is certain that no process listens on a unix socket.

    False too for another kind of file, for a socket out of our reach, for a path that is too long,
    and while no descriptor is left to ask with.
    """
    if is_too_long(path) or not is_socket(path):
        return False
    try:
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError:
        return False
    with probe:
        return probe.connect_ex(os.fspath(path)) == errno.ECONNREFUSED


class Listener(NamedTuple):
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
        """Remove the file, unless another process owns it by now; connections stay.

        If the file cannot be removed, connecting to it is refused once the socket is closed, and
        the next instance removes it (`kubelet.endpoints`).
        """
        if self.path is None or _inode(self.path) != self.inode:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning(
                "a socket cannot be removed",
                extra={"path": str(self.path), "error": error.strerror},
            )


def listen_unix(path: Path) -> Listener:
    """Listen on a unix socket that only this user may connect to.

    A socket that an earlier process left behind is replaced.

    Args:
        path: Absolute, at most `UNIX_PATH_LIMIT` bytes; its folder must exist.

    Raises:
        ConfigError: The path is too long, or its folder is missing.
        StorageError: The file system refuses.
    """
    _check_length(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with storage.translated(f"create socket {path}"):
            _bind(listener, path)
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
    with storage.translated(f"listen on TCP port {port}", ConfigError):
        listener = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if both else socket.AF_INET,
            backlog=BACKLOG,
            dualstack_ipv6=both,
        )
    listener.setblocking(False)
    return Listener(listener)


def _length(path: Path) -> int:
    return len(os.fsencode(path))


def _check_length(path: Path) -> None:
    if is_too_long(path):
        raise ConfigError(
            f"socket path {path} has {_length(path)} bytes, a unix socket's may have "
            f"{UNIX_PATH_LIMIT}: choose a shorter directory or driver name"
        )


def _bind(listener: socket.socket, path: Path) -> None:
    """Bind a socket in place of one that an earlier process left behind."""
    try:
        path.unlink(missing_ok=True)
        listener.bind(os.fspath(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(
            f"cannot create socket {path}: directory {path.parent} does not exist; "
            "is the kubelet's directory mounted there?"
        ) from error


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:  # gone, or its folder is out of our reach: no file that we could remove
        return None
