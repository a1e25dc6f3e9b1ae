"""Paths of the host, seen below the folder where its root is mounted.

The kernel would follow an absolute symbolic link of the host from our own root, to a file that is
missing there or is another one.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from trio_npu_dra.kit.base import storage

_MAX_LINKS: Final = 40  # as the kernel
_TICK_NS: Final = 2 * 10**9  # no file system has coarser times

T = TypeVar("T")

_Stamp: TypeAlias = tuple[int, int, int]  # device, inode, time of the last change in ns


def resolve(
    root: str, path: str, *, on_folder: Callable[[str], object] = lambda _: None
) -> str | None:
    """Map a path of the host to its place here; links are resolved inside the host's root.

    Args:
        root: The folder with the host's root; `/` if it is ours.
        path: Absolute, as the host knows it.
        on_folder: Called with each folder before a name is looked up in it, with some often.

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
        on_folder(folder or "/")
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


def read_file(root: str, path: str, *, note: Callable[[str], object], limit: int) -> bytes | None:
    """Read a file of the host, whoever owns it; None if there is none.

    Args:
        root: As for `resolve`.
        path: As for `resolve`.
        note: Called with the file, and with each folder on the way: they tell of a change.
        limit: Its maximum size in bytes.

    Raises:
        StorageError: It exists and cannot be read.
    """
    place = resolve(root, path, on_folder=note)
    if place is None:
        return None
    note(place)
    return storage.read_bytes(Path(place), limit=limit, any_owner=True)


class KnownPaths:
    """Results of look-ups in the host's files, until a folder on the way changes.

    Whatever makes a path appear or vanish (a file, a link, a mount) changes the time of a folder in
    which a name on the way was looked up, or replaces that folder. Only a folder that changed a
    moment ago can change again with the same time, so results that depend on one are not kept.

    Args:
        now: The clock of the folders' times, in nanoseconds since 1970.
    """

    def __init__(self, *, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._known: dict[tuple[str, ...], tuple[Any, dict[str, _Stamp | None]]] = {}

    def look_up(self, key: tuple[str, ...], find: Callable[[Callable[[str], object]], T]) -> T:
        """What *find* returns, or returned last if nothing that it noted has changed.

        Args:
            key: One for each *find*: nothing else is compared.
            find: Notes each folder and file that its result depends on, before it looks there.
        """
        known = self._known.get(key)
        if known is not None and all(_stamp(name) == one for name, one in known[1].items()):
            found: T = known[0]
            return found
        settled = self._now() - _TICK_NS
        folders: dict[str, _Stamp | None] = {}

        def note(folder: str) -> None:
            if folder not in folders:
                folders[folder] = _stamp(folder)

        found = find(note)
        if all(one is not None and one[2] < settled for one in folders.values()):
            self._known[key] = found, folders
        return found


def _stamp(folder: str) -> _Stamp | None:
    try:
        found = os.stat(folder)  # noqa: PTH116 - a text
    except OSError:  # gone by now
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
