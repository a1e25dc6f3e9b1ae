"""Paths of the host, seen below the folder where its root is mounted.

The kernel would follow an absolute symbolic link of the host from our own root, to a file that is
missing there or is another one.
"""

from __future__ import annotations

import errno
import os
from typing import Final

_MAX_LINKS: Final = 40  # as the kernel


def resolve(root: str, path: str) -> str | None:
    """Where a file or folder of the host is for us, all links followed within the host's tree.

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
        try:
            target = os.readlink("/".join((base, *place, part)))  # noqa: PTH115 - a text
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
