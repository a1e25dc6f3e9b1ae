"""Foreign things in places of the driver's files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        # The name is short because a socket's path is limited.
        folder = os.open(path.parent, os.O_RDONLY)
        left.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def victim(path: Path) -> Path:
    """The target of the link at *path*."""
    return path.with_name(f"victim-of-{path.stem}")


def _link(path: Path) -> None:
    victim(path).write_text("secret")
    path.symlink_to(victim(path))


KINDS: Mapping[str, Callable[[Path], None]] = {
    "link": _link,
    "pipe": os.mkfifo,
    "socket": _socket,
}
"""Each kind: the function that puts it somewhere."""


def put(kind: str, path: Path) -> None:
    """Put something foreign at *path*."""
    KINDS[kind](path)


def is_there(path: Path) -> bool:
    """Whether anything has that name, even a dangling link."""
    return os.path.lexists(path)
