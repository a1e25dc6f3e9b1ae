"""Facts about the machine, and the resources that a process has used."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.processes import run

_BUILD = """
import json, os, sys, sysconfig
arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
print(json.dumps([sys.version, arguments, os.path.realpath(sys.executable)]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The resources that a process has used so far.

    Attributes:
        cpu_ms: CPU time of the threads it has now.
        written_bytes: Bytes that it made the kernel write to disks.
        rss_mib: Resident memory.
        pss_mib: The same, with memory that other processes share counted in part.
    """

    cpu_ms: float
    written_bytes: int
    rss_mib: float
    pss_mib: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Read it from /proc."""
        process = Path(f"/proc/{pid}")
        # Not /proc/<pid>/stat, whose clock ticks every 10 ms only.
        schedules = [path.read_text() for path in process.glob("task/*/schedstat")]
        memory = (process / "smaps_rollup").read_text()
        return cls(
            cpu_ms=sum(int(schedule.split()[0]) for schedule in schedules) / 1e6,
            written_bytes=_number("write_bytes", (process / "io").read_text()),
            rss_mib=_number("Rss", memory) / 1024,
            pss_mib=_number("Pss", memory) / 1024,
        )


@contextmanager
def place() -> Iterator[Path]:
    """A temporary folder with a path short enough for sockets; it stays on an error."""
    folder = Path(tempfile.mkdtemp(prefix="npu-bench-"))
    try:
        yield folder
    except BaseException:
        print(f"logs: {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)


def facts(folder: Path, kubernetes: str) -> list[str]:
    """Lines about the machine, for the figures; *folder* is where the drivers keep their files."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    disk = run("stat", "--file-system", "--format=%T", folder).strip()
    cores = f"{os.cpu_count()} cores ({model[1] if model else platform.machine()})"
    return [
        f"{cores}, Linux {platform.release()}, {disk}, load {os.getloadavg()[0]:.2f}",
        f"kube-apiserver {kubernetes} on the same cores",
        f"the benchmark itself: {python_build([sys.executable])}",
    ]


def python_build(words: Sequence[str]) -> str:
    """The version of the Python that a command starts, and whether it was built with PGO."""
    version, arguments, program = json.loads(run(*words, "-c", _BUILD))
    if Path(program).parent == Path("/usr/bin"):
        # Debian turns PGO on by its own rules, not by an argument of configure.
        return f"Debian's Python {version} (with PGO)"
    with_pgo = "with" if "--enable-optimizations" in arguments else "without"
    return f"Python {version} ({with_pgo} PGO)"


def _number(field: str, text: str) -> int:
    found = re.search(rf"^{field}:\s*(\d+)", text, re.MULTILINE)
    assert found, f"no {field} in {text}"
    return int(found[1])
