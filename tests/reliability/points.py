"""The system calls at which a death makes a difference, as text.

A point is a call that changes a file or a socket of the node or tells a peer something, and the
first look for the answer of the API server to a change. All other calls change nothing that
outlives the process: locks and listening end with it, a sync matters to power cuts alone, a request
that only reads changes nothing, half a message tells nothing. So what a death leaves anywhere, one
just before the next point leaves too, and a death after a call is one before the next.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dev.rig.notified import Call

_AT_FDCWD: Final = -100

_ON_DESCRIPTORS: Final = {
    "fchmod": "chmod",
    "fchown": "chown",
    "ftruncate": "write",
    "pwrite64": "write",
    "write": "write",
    "writev": "write",
}
"""Calls on an open file, and what they do."""

_ON_PATHS: Final[Mapping[str, tuple[str, tuple[tuple[int | None, int], ...]]]] = {
    "chmod": ("chmod", ((None, 0),)),
    "chown": ("chown", ((None, 0),)),
    "fchmodat": ("chmod", ((0, 1),)),
    "fchmodat2": ("chmod", ((0, 1),)),
    "fchownat": ("chown", ((0, 1),)),
    "lchown": ("chown", ((None, 0),)),
    "link": ("link", ((None, 0), (None, 1))),
    "linkat": ("link", ((0, 1), (2, 3))),
    "mknod": ("mknod", ((None, 0),)),
    "mknodat": ("mknod", ((0, 1),)),
    "mkdir": ("mkdir", ((None, 0),)),
    "mkdirat": ("mkdir", ((0, 1),)),
    "openat": ("open", ((0, 1),)),
    "rename": ("rename", ((None, 0), (None, 1))),
    "renameat": ("rename", ((0, 1), (2, 3))),
    "renameat2": ("rename", ((0, 1), (2, 3))),
    "rmdir": ("remove", ((None, 0),)),
    "symlink": ("link", ((None, 1),)),
    "symlinkat": ("link", ((1, 2),)),
    "truncate": ("write", ((None, 0),)),
    "unlink": ("remove", ((None, 0),)),
    "unlinkat": ("remove", ((0, 1),)),
}
"""Calls on names, what they do, and their arguments: the folder's descriptor, if any, the name."""

_ON_SOCKETS: Final = ("bind", "recvfrom", "recvmsg", "sendmsg", "sendto")

SYSTEM_CALLS: Final = (*_ON_DESCRIPTORS, *_ON_PATHS, *_ON_SOCKETS)
"""All calls of which some are points, by the names that they have on some machine."""

KINDS: Final = frozenset(
    {
        "bind",
        "receive",
        "send",
        *_ON_DESCRIPTORS.values(),
        *(does for does, _ in _ON_PATHS.values()),
    }
)
"""The first words of their names."""

_REQUEST: Final = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.1\r\n")
_RANDOM: Final = re.compile(r"\.[0-9a-f]{8}$")


class Points:
    """Names the points of one daemon, which are in its *folders*, on its sockets and at its peers.

    Args:
        root: Left out of names.
        folders: Where its files and sockets are, below *root*.
        names: What to call what has a random name.
    """

    def __init__(self, root: Path, folders: Iterable[Path], names: Mapping[str, str]) -> None:
        self._root = f"{root}/"
        self._folders = tuple(map(str, folders))
        self._names = names
        self._requests: dict[str, str] = {}
        self._unanswered: set[str] = set()

    @property
    def all_answered(self) -> bool:
        """Whether it has looked for the answer to each change that it asked for."""
        return not self._unanswered

    def name(self, call: Call) -> str:
        """What the call does; empty: it is no point."""
        if call.name in _ON_PATHS:
            does, places = _ON_PATHS[call.name]
            paths = [_path(call, *place) for place in places]
            return self._on_files(does, *paths) if _changes(call, does, paths[0]) else ""
        if call.name == "bind":
            return self._on_files("bind", _address(call))
        if call.name in {"recvfrom", "recvmsg"}:
            return self._receive(call) if self._unanswered else ""
        opened = call.link(f"fd/{call.number(0)}")
        if call.name in _ON_DESCRIPTORS:
            does = _ON_DESCRIPTORS[call.name]
            return self._on_files(does, opened) if _changes(call, does, opened) else ""
        return self._send(opened, _data(call))

    def _on_files(self, does: str, *paths: str) -> str:
        if not any(path.startswith(self._folders) for path in paths):
            return ""
        return f"{does} {' to '.join(map(self._short, paths))}"

    def _send(self, connection: str, data: bytes) -> str:
        """A request to the API server or its body, or what answers a peer of an own socket."""
        if request := _REQUEST.match(data):
            verb, path = (part.decode() for part in request.groups())
            is_change = verb != "GET" and "dryRun=" not in path
            self._requests[connection] = self._short(f"{verb} {path}") if is_change else ""
            if not is_change:
                return ""
            self._unanswered.add(connection)
            return f"send {self._requests[connection]}"
        if connection in self._requests:
            request_name = self._requests[connection]
            return f"send the body of {request_name}" if request_name else ""
        told = _told(data)
        return self._on_files(f"send {told} at", _own_name(connection)) if told else ""

    def _receive(self, call: Call) -> str:
        connection = call.link(f"fd/{call.number(0)}")
        if connection not in self._unanswered:
            return ""
        self._unanswered.remove(connection)
        return f"receive the answer to {self._requests[connection]}"

    def _short(self, path: str) -> str:
        for random, name in self._names.items():
            path = path.replace(random, name)
        return _RANDOM.sub(".*", path.removeprefix(self._root))


def _path(call: Call, folder: int | None, name: int) -> str:
    """An argument that is a path, made absolute."""
    path = call.memory(call.arguments[name], 4096).partition(b"\0")[0].decode()
    if path.startswith("/"):
        return path
    is_open = folder is not None and call.number(folder) != _AT_FDCWD
    return f"{call.link(f'fd/{call.number(folder or 0)}' if is_open else 'cwd')}/{path}"


def _address(call: Call) -> str:
    """The path of a `struct sockaddr_un`; empty for one of another family."""
    address = call.memory(call.arguments[1], call.number(2))
    (family,) = struct.unpack_from("=H", address)
    return address[2:].partition(b"\0")[0].decode() if family == socket.AF_UNIX else ""


def _own_name(opened: str) -> str:
    """The path at which a unix socket listens, or was accepted; else empty."""
    inode = opened.removeprefix("socket:[").removesuffix("]")
    for line in Path("/proc/net/unix").read_text(encoding="utf-8").splitlines():
        fields = line.split(maxsplit=7)
        if fields[6] == inode:
            return fields[7] if len(fields) > 7 else ""
    return ""


def _data(call: Call) -> bytes:
    """The beginning of what is sent."""
    address, size = call.arguments[1:3]
    if call.name == "sendmsg":
        header = struct.unpack("=QQQQ", call.memory(address, 32))  # struct msghdr, its first half
        address, size = struct.unpack("=QQ", call.memory(header[2], 16))  # struct iovec
    return call.memory(address, min(size, 1000))


def _told(data: bytes) -> str:
    """What the peer of a gRPC socket learns from what is sent: a message, or that it was the last.

    By the types and the flags of the frames (RFC 9113, section 4.1).
    """
    told = dict[str, None]()
    while len(data) >= 9:
        kind, flags = data[3:5]
        if kind == 0:
            told["a message"] = None
        elif kind == 1 and flags & 1:
            told["a status"] = None
        data = data[9 + int.from_bytes(data[:3]) :]
    return " and ".join(told)


def _changes(call: Call, does: str, path: str) -> bool:
    """Whether a file is going to be another one, or there is going to be one more or less."""
    exists = os.path.lexists(path)
    if does == "link":
        return True
    if does == "open":
        return not exists or bool(call.number(2) & os.O_TRUNC)
    if does in {"mkdir", "mknod"}:
        return not exists
    if does == "chmod":
        mode = call.number(2 if call.name.endswith("at") else 1)
        return exists and stat.S_IMODE(os.lstat(path).st_mode) != mode
    return exists
