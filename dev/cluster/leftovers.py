"""Finds what a stopped cluster has left on the machine: nothing, if all is well."""

from __future__ import annotations

from pathlib import Path

from dev.cluster import cgroups


def find(identity: str) -> list[str]:
    """Look for everything that belongs to a cluster.

    Args:
        identity: its name, part of every path and cgroup it makes.

    Returns:
        One line for each process, mount or cgroup; the cluster's network shows as the process
        that holds it.
    """
    left = [f"cgroup {path}" for path in cgroups.beginning_with(identity)]
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            left += [f"{what} of process {process.name}" for what in _held(process, identity)]
    return left


def _held(process: Path, identity: str) -> list[str]:
    return [
        f"{name} ({_text(process / 'cmdline')})"
        for name in ("cmdline", "cgroup", "mountinfo")
        if identity in _text(process / name)
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").replace("\0", " ")
    except OSError:  # it ended while we looked
        return ""
