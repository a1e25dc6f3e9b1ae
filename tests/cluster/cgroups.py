"""The node's cgroup: one folder in every hierarchy, under which the kubelet puts its pods."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from tests.cluster.processes import wait_until


def hierarchies() -> list[Path]:
    """Where the machine's cgroup hierarchies are: all of version 1, or the one of version 2."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    kinds = {row[4]: row[row.index("-") + 1] for row in mounts}
    first = [Path(target) for target, kind in kinds.items() if kind == "cgroup"]
    second = [Path(target) for target, kind in kinds.items() if kind == "cgroup2"]
    return first or second


def create(name: str) -> None:
    """Make the cgroup `name` in every hierarchy."""
    for hierarchy in hierarchies():
        folder = hierarchy / name
        folder.mkdir()
        # A version 1 cpuset starts empty, and takes no process before it is filled.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (folder / file).exists() and not (folder / "cgroup.controllers").exists():
                (folder / file).write_text((hierarchy / file).read_text())


def remove(name: str) -> None:
    """Remove the cgroup `name` and all below it; its processes must have been ended."""
    for folder in existing(name):
        wait_until(functools.partial(_removed, folder), f"{folder} removed", timeout=10)


def existing(name: str) -> list[Path]:
    """The folders of the cgroup `name` that exist."""
    return [path for hierarchy in hierarchies() if (path := hierarchy / name).exists()]


def _removed(folder: Path) -> bool:
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            Path(path).rmdir()
        except OSError:  # a process in it is still ending
            return False
    return True
