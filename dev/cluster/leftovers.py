"""What an ended cluster may have left on the machine."""

from __future__ import annotations

from pathlib import Path

from dev.cluster import cgroups


def left_of(identity: str) -> list[str]:
    """A line for each cgroup that begins with that name, and each process and mount that has it."""
    left = [f"cgroup {path}" for path in cgroups.beginning_with(identity)]
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "cgroup", "mountinfo"):
            if identity in _text(process / name):
                left.append(f"{name} ({_text(process / 'cmdline')}) of process {process.name}")
    return left


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").replace("\0", " ")
    except OSError:  # it ended while we looked
        return ""
