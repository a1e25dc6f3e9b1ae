"""Paths of the host, seen below the folder where its root is mounted.

The kernel would follow an absolute symbolic link of the host from our own root, to a file that is
missing there or is another one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base import storage

_MAX_LINKS: Final = 40  # as the kernel


def resolve(root: str, path: str) -> str | None:
    """Map a path of the host to its place here; links are resolved inside the host's root.

    Args:
        root: The folder with the host's root; `/` if it is ours.
        path: Absolute, as the host knows it.

    Returns:
        A path without links below *root*, never one outside it; None if the host has none there.
    """
    place: list[str] = []
    left = path.split("/")[::-1]
    links = 0
    base = root.rstrip("/")
    while left:
        part = left.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            del place[-1:]
            continue
        folder = "/".join((base, *place))
        try:
            target = os.readlink(f"{folder}/{part}")  # noqa: PTH115 - a text
        except OSError as error:
            if error.errno != errno.EINVAL:  # missing, or out of our reach
                return None
            place.append(part)  # no link
            continue
        links += 1
        if links > _MAX_LINKS:
            return None
        if target.startswith("/"):
            place.clear()
        left += target.split("/")[::-1]
    return "/".join((base, *place)) or "/"


def read_file(root: str, path: str, *, limit: int) -> bytes | None:
    """Read a file of the host; None if there is none.

    Args:
        root: As for `resolve`.
        path: As for `resolve`.
        limit: Its maximum size in bytes.

    Raises:
        StorageError: It exists and cannot be read.
    """
    place = resolve(root, path)
    if place is None:
        return None
    return storage.read_bytes(Path(place), limit=limit)
