"""A driver whose node does nothing does nothing."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.cluster import audit
from dev.cluster.driver import ACCOUNT, Driver
from dev.cluster.processes import Program
from tests.e2e.space import Space

pytestmark = pytest.mark.cluster

CALLS = (
    *("open", "openat", "openat2", "creat", "truncate", "ftruncate", "fallocate"),
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range"),
    *("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat"),
    *("unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "mknod", "mknodat"),
    *("fsync", "fdatasync", "chmod", "fchmod", "fchmodat", "utimensat"),
)
READING = re.compile(r"\bopen(at2?)?\((?!.*O_(WRONLY|RDWR|CREAT))")
NO_FILE = re.compile(r"\b(write|writev)\(\d+<(pipe|socket|anon_inode|TCP|UNIX)")


def file_writes(trace: Path) -> list[str]:
    """The traced calls that change a file, of whatever file system."""
    lines = trace.read_text(errors="replace").splitlines()
    return [
        line
        for line in lines
        if "(" in line and not any(known.search(line) for known in (READING, NO_FILE))
    ]


@contextmanager
def traced(driver: Driver, trace: Path) -> Iterator[None]:
    """All threads of the daemon run under strace, which writes to that file."""
    pid = driver.pid()
    command = ["strace", "-f", "-y", "-p", str(pid), "-o", str(trace), "-e", ",".join(CALLS)]
    program = Program.start("strace", command, logs=driver.cluster.logs)
    try:
        driver.cluster.wait(lambda: "attached" in program.log.read_text(), "strace attached")
        yield
    finally:
        program.signal(signal.SIGINT)
        program.process.wait(30)


def test_idle_driver_writes_nothing(
    driver: Driver, space: Space, pytestconfig: pytest.Config, tmp_path: Path, notes: list[str]
) -> None:
    """While a pod holds an NPU and nothing happens: no API write, no change of any file."""
    seconds: float = pytestconfig.getoption("--idle-seconds")
    space.start("user")
    driver.cluster.wait(lambda: is_quiet(driver), "the last Event written")
    trace, daemon = tmp_path / "trace", driver.pid()
    with traced(driver, trace):
        mark = driver.cluster.audit_mark()
        used = cpu_seconds(driver)
        time.sleep(seconds)  # the time is what is tested
        used = cpu_seconds(driver) - used
        requests = [each for each in driver.cluster.audit(mark) if each.user == ACCOUNT]
        idle = file_writes(trace)
        space.delete_pod("user")
        driver.wait_without_traces()

    notes.append(
        f"idle for {seconds:.0f} s: {len(requests)} API requests, "
        f"{used:.2f} s of CPU under strace, {driver.memory_mib()['VmRSS']:.0f} MiB resident"
    )
    assert driver.pid() == daemon, "the kubelet's probe must have found it alive"
    assert audit.writes(requests) == []
    assert idle == []
    assert any("unlink" in line and "/etc/cdi" in line for line in file_writes(trace)), (
        "strace must have seen the CDI file go, or it has seen nothing"
    )


def is_quiet(driver: Driver) -> bool:
    """Whether a while goes by without a write: Events of earlier tests are counted on for 10 s."""
    mark = driver.cluster.audit_mark()
    time.sleep(12)
    return audit.writes(driver.cluster.audit(mark), user=ACCOUNT) == []


def cpu_seconds(driver: Driver) -> float:
    """CPU time that the daemon has used, in seconds."""
    fields = Path(f"/proc/{driver.pid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
