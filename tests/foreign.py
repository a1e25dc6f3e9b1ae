"""What somebody may put where the driver has its files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        # By a short name: a socket's path is limited.
        folder = os.open(path.parent, os.O_RDONLY)
        left.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "kept").write_text("somebody's")


def victim(path: Path) -> Path:
    """What the link at *path* leads to."""
    return path.with_name(f"victim-of-{path.stem}")


def _link(path: Path) -> None:
    victim(path).write_text("secret")
    path.symlink_to(victim(path))


KINDS: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "link": (_link, "a symbolic link"),
    "folder": (_folder, "a folder"),
    "pipe": (os.mkfifo, "a named pipe"),
    "socket": (_socket, "a socket"),
}
"""Each kind: how it is put somewhere, and what it is called."""


def put(kind: str, path: Path) -> None:
    """Put something foreign at *path*."""
    KINDS[kind][0](path)


def set_aside(path: Path) -> list[Path]:
    """What had the name *path* and was renamed."""
    return sorted(path.parent.glob(f"{path.name}.foreign-*"))


def is_there(path: Path) -> bool:
    """Whether anything has that name, a link that leads nowhere too."""
    return os.path.lexists(path)
