"""The whole suite: `just e2e`.

On a machine with docker and kind it is one session of pytest on kind's cluster. Else, or with
`--on all`, a part runs on kind's cluster and the rest beside it on clusters that are built here, a
session each, so that none disturbs another. Arguments go to each of them. A session's output is
shown when it has ended, and at the end what there was and how long it took.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import images, packages
from dev.cluster.binaries import containerd, kubernetes
from dev.cluster.releases import BY_NEED, DEFAULT, Release
from dev.kind import cluster as kind
from dev.kind import node_image
from dev.kind.engine import answering

TESTS = Path(__file__).parents[2] / "tests"
E2E = TESTS / "e2e"
RIGHTS = E2E / "test_rights.py"
ON_KIND = (
    "chart",
    "device_plugin*",
    "faults*",
    "guide*",
    "partitions",
    "rolling_update",
    "sharing",
)
"""Which files run on kind's cluster: pods of several nodes, systemd's kubelet, and what people do
first."""
SHARES = {
    "kubelet restarted, and away": ("kubelet_*", "node_without_npus", "restarts"),
    "claims": ("claims_*", "refusals"),
    "another version, another board": (
        "boards",
        "doctor",
        "migration",
        "modules",
        "upgrade",
        "vnpus",
    ),
}
"""Which files make a session on a built cluster of the default version, so that all take about as
long; the files that are named nowhere make another one."""
NOTHING_CHOSEN = 5
"""pytest's status if no test was left, which may be what the arguments say."""
WATCHES = 100
"""Instances of inotify that the programs of a cluster may have: 14, and 8 for each further node. A
busy kernel frees those of a program that has ended late: kubelets that were restarted met 180."""
WATCHES_OF_KIND = 200
"""The same of kind's cluster with three nodes; 56 are usual."""
MEMORY = 2 << 30
"""Bytes that a cluster and its session may take; half of it is usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run of pytest: what it shows, and its arguments."""

    title: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a part of the run went, as text, and `seconds` since the run began."""

    title: str
    word: str
    began: float
    ended: float


def files(names: Sequence[str]) -> list[Path]:
    """The files of tests/e2e with these names."""
    return sorted(path for name in names for path in E2E.glob(f"test_{name}.py"))


def sessions_of(release: Release, rights: Path) -> list[Session]:
    """What the clusters that are built run: the tests that may differ, of the default version more.

    Args:
        release: The version.
        rights: Where sessions of the default version leave which rights the driver used.
    """
    version = release.kubernetes
    if version != DEFAULT:
        return [
            Session(
                title=f"Kubernetes {version}: tests of every version",
                arguments=(
                    *("tests/cluster", "tests/e2e", "-m", "every_version"),
                    *("--kubernetes-version", version),
                ),
            )
        ]
    shares = {title: files(names) for title, names in SHARES.items()}
    taken = {RIGHTS, *files(ON_KIND), *(path for share in shares.values() for path in share)}
    shares["all others"] = sorted(set(E2E.glob("test_*.py")) - taken)
    sessions = [
        Session(
            title=f"Kubernetes {version}: {title}",
            arguments=(*map(str, share), str(RIGHTS), f"--rights={rights}"),
        )
        for title, share in shares.items()
    ]
    alone = Session(
        title=f"Kubernetes {version}: the API server alone",
        arguments=("tests/cluster",),
    )
    return [*sessions, alone]


def last_session(rights: Path) -> Session:
    """The session that needs the results of all tests of the default version."""
    return Session(
        title="unused rights",
        arguments=(f"{RIGHTS}::test_no_right_is_idle", f"--rights={rights}"),
    )


def on_kind() -> Session:
    """All tests in one session."""
    return Session(title="kind", arguments=("--on=kind", "tests/e2e"))


def part_on_kind(rights: Path) -> Session:
    """The part that kind's cluster takes from the built ones of the default version."""
    return Session(
        title=f"kind, Kubernetes {DEFAULT}",
        arguments=(
            *("--on=kind", *map(str, files(ON_KIND)), str(RIGHTS)),
            f"--rights={rights}",
        ),
    )


def at_once() -> int:
    """How many built clusters this machine has room for beside kind's."""
    text = Path("/proc/meminfo").read_text()
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None, "Linux says what memory is available"
    return max(1, min(int(found[1]) * 1024 // MEMORY - 1, 2 * (os.cpu_count() or 1)))


@contextmanager
def room_for_watches(count: int) -> Iterator[None]:
    """Let root's programs have so many instances of inotify meanwhile; 128 are usual."""
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    before = int(limit.read_text())
    limit.write_text(f"{max(before, count)}")
    try:
        yield
    finally:
        limit.write_text(f"{before}")


class Suite:
    """The sessions of one run, and how they went."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._began = time.monotonic()
        self._verdicts: list[Verdict] = []

    def add(self, title: str, word: str, began: float) -> None:
        """Note a part that has ended."""
        now = time.monotonic()
        self._verdicts.append(
            Verdict(title=title, word=word, began=began - self._began, ended=now - self._began)
        )

    def run(self, session: Session) -> bool:
        """Run a session to its end and show what it printed; returns whether it passed."""
        began = time.monotonic()
        # One write, because other sessions print too.
        print(f"started: {session.title}\n", end="", flush=True)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "--durations=20", "--durations-min=1"),
                *(*session.arguments, *self._arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        allowed = {0, NOTHING_CHOSEN} if self._arguments else {0}
        passed = done.returncode in allowed
        print(f"\n=== {session.title}\n{done.stdout}", end="", flush=True)
        self.add(session.title, "passed" if passed else "FAILED", began)
        return passed

    def run_on_kind(self, session: Session) -> bool:
        """Run a session, and before it what makes its cluster possible where no docker answers."""
        if answering():
            return self.run(session)
        began = time.monotonic()
        node_image.ready()
        self.add("kind's nodes: ready", "built", began)
        return self.run(session)

    def run_all(self) -> bool:
        """Build one version after another, and begin with its tests while the next is built."""
        clusters = at_once()
        with (
            room_for_watches(clusters * WATCHES + WATCHES_OF_KIND),
            tempfile.TemporaryDirectory() as temp,
            ThreadPoolExecutor(1) as one,
            ThreadPoolExecutor(clusters) as beside,
        ):
            rights = Path(temp)
            running: list[Future[bool]] = [one.submit(self.run_on_kind, part_on_kind(rights))]
            for release in BY_NEED:
                began = time.monotonic()
                kubernetes(release.kubernetes).ready()
                containerd(release.containerd).ready()
                self.add(f"Kubernetes {release.kubernetes}: ready", "built", began)
                running += [
                    beside.submit(self.run, session) for session in sessions_of(release, rights)
                ]
            passed = [session.result() for session in running]
            if not self._arguments:
                passed.append(self.run(last_session(rights)))
            return all(passed)

    def show(self) -> None:
        """Print a line for each part, by its beginning."""
        print("\n from    to  seconds")
        for each in sorted(self._verdicts, key=lambda verdict: verdict.began):
            took = each.ended - each.began
            print(f"{each.began:5.0f} {each.ended:5.0f} {took:6.0f} s  {each.word:6}  {each.title}")


def main(arguments: Sequence[str]) -> int:
    """Run it all; returns 1 if a session failed."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--on", choices=("all", "kind"))
    chosen, further = parser.parse_known_args(arguments)
    if os.geteuid() != 0:
        sys.exit("just e2e: run it as root, because tests reach into nodes through /proc")
    usable = kind.usable()
    only_kind = chosen.on == "kind" or (chosen.on is None and usable)
    if not (only_kind and usable):
        if not shutil.which("apt-get"):
            sys.exit("just e2e: needs docker, kind, kubectl and helm, or Debian to build clusters")
        packages.install()
    suite = Suite(further)
    if only_kind:
        print("the cluster is kind's", flush=True)
        passed = suite.run_on_kind(on_kind())
    else:
        print("the clusters are kind's and others that are built here", flush=True)
        images.tidy()
        passed = suite.run_all()
    suite.show()
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
