"""The programs of a node that run now, by its /proc; those of containers are left out."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from trio_npu_dra.tools.doctor.places import Places


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A process of the node itself.

    Attributes:
        pid: Its id.
        words: Its command line.
    """

    pid: int
    words: tuple[str, ...]

    def flag(self, *names: str) -> str:
        """The value of a flag, `--name=value` or `--name value`, the last one; empty without it."""
        found = ""
        for position, word in enumerate(self.words):
            name, equals, value = word.partition("=")
            if name in names:
                found = value if equals else "".join(self.words[position + 1 : position + 2])
        return found


def programs(places: Places, name: str) -> Iterator[Program]:
    """Those of a name whose root is the host's; none where no /proc of the host is seen."""
    for process in _processes(places):
        if command(process) == name and _is_on_host(process, places.host.host_root):
            words = tuple(_read(process / "cmdline").rstrip("\0").split("\0"))
            yield Program(pid=int(process.name), words=words)


def command(process: Path) -> str:
    """The name of a process's program; empty if it has ended."""
    return _read(process / "comm").strip()


def cgroup(process: Path) -> str:
    """The cgroups of a process; empty if it has ended."""
    return _read(process / "cgroup")


def running_pods(places: Places, uids: Collection[str]) -> frozenset[str]:
    """Those pods that have a process; all of them where no /proc of the host is seen.

    Cgroups have the pods' UIDs, with `_` for `-` where systemd makes them.
    """
    processes = _processes(places)
    if not processes:
        return frozenset(uids)
    cgroups = "".join({cgroup(process) for process in processes}).replace("_", "-")
    return frozenset(uid for uid in uids if uid in cgroups)


def _processes(places: Places) -> list[Path]:
    """Their folders in the host's /proc; none where it is missing or out of our reach."""
    try:
        return sorted(path for path in places.processes.iterdir() if path.name.isdigit())
    except OSError:
        return []


def _is_on_host(process: Path, host_root: Path) -> bool:
    try:
        return os.path.samestat((process / "root").stat(), host_root.stat())
    except OSError:  # it has ended, or is out of our reach
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return ""
