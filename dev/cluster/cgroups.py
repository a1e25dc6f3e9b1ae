"""A node's cgroup: one folder in every hierarchy, under which the kubelet puts its pods."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from dev.cluster.processes import wait_until


def hierarchies(kind: str) -> list[Path]:
    """The folders of the machine's cgroup hierarchies: `cgroup` (version 1) or `cgroup2`."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [Path(row[4]) for row in mounts if row[row.index("-") + 1] == kind]


def create(name: str) -> None:
    """Make the cgroup `name` where the kubelet looks for it."""
    for hierarchy in hierarchies("cgroup") or hierarchies("cgroup2"):
        folder = hierarchy / name
        folder.mkdir()
        # A version 1 cpuset starts empty, and accepts no process before it is filled.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (folder / file).exists() and not (folder / "cgroup.controllers").exists():
                (folder / file).write_text((hierarchy / file).read_text())


def remove(name: str) -> None:
    """Remove the cgroup `name` and all below it; its processes must have been ended."""
    for folder in existing(name):
        wait_until(functools.partial(_removed, folder), f"{folder} removed", timeout=10)


def existing(name: str) -> list[Path]:
    """The folders of the cgroup `name` that exist.

    On a machine with both versions runc makes some in version 2 as well.
    """
    every = hierarchies("cgroup") + hierarchies("cgroup2")
    return [path for hierarchy in every if (path := hierarchy / name).exists()]


def beginning_with(name: str) -> list[Path]:
    """The folders of all cgroups whose name begins so."""
    every = hierarchies("cgroup") + hierarchies("cgroup2")
    return [path for hierarchy in every for path in hierarchy.glob(f"{name}*")]


def _removed(folder: Path) -> bool:
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            Path(path).rmdir()
        except OSError:  # a process in it is still ending
            return False
    return True
