"""What clusters may have left on the machine: those that ended, and those that were killed.

All that a killed one leaves is files and cgroups, for the rest ends with its processes. Their names
begin with `trio-npu-dra-`, and then have the process that made them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from dev.cluster import cgroups
from dev.cluster.binaries import cache, locked

PREFIX = "trio-npu-dra-"
NAME = re.compile(rf"{PREFIX}(?P<pid>\d+)-.+")


def remove_dead() -> None:
    """Remove what clusters and builds left whose process was killed; logs that were kept stay."""
    temp = Path(tempfile.gettempdir())
    with locked("leftovers"):
        for path in (*temp.iterdir(), *cache().iterdir(), *cgroups.beginning_with(PREFIX)):
            made = NAME.fullmatch(path.name)
            if made and not Path("/proc", made["pid"]).exists() and not _is_kept(path):
                with suppress(OSError):  # its last programs may still end: the next one removes it
                    remove_left(path.name)


def remove_left(identity: str) -> None:
    """Remove the folders and the cgroup of that name, if they are there."""
    cgroups.remove(identity)
    for parent in (Path(tempfile.gettempdir()), cache()):
        if (folder := parent / identity).exists():
            # A killed test may have left files that not even root can remove.
            subprocess.run(["chattr", "-R", "-f", "-i", folder], check=False)
            shutil.rmtree(folder)


def left_of(identity: str) -> list[str]:
    """A line for each cgroup that begins with that name, and each process and mount that has it."""
    left = [f"cgroup {path}" for path in cgroups.beginning_with(identity)]
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "cgroup", "mountinfo"):
            if identity in _text(process / name):
                left.append(f"{name} ({_text(process / 'cmdline')}) of process {process.name}")
    return left


def _is_kept(folder: Path) -> bool:
    """Whether nothing but logs is there."""
    return folder.exists() and [path.name for path in folder.iterdir()] == ["logs"]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").replace("\0", " ")
    except OSError:  # it ended while we looked
        return ""
