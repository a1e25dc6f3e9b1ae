"""The whole suite on every cluster that this machine can have: `just e2e`.

Each session of pytest has a cluster of its own, so that sessions run beside each other and none
disturbs another. Arguments go to each of them. A session's output is shown when it has ended, and
at the end what there was and how long it took.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import images, packages
from dev.cluster.binaries import containerd, kubernetes
from dev.cluster.releases import BY_NEED, DEFAULT, Release
from dev.kind import cluster as kind
from dev.kind import engine

TESTS = Path(__file__).parents[2] / "tests"
E2E = TESTS / "e2e"
CLUSTER = TESTS / "cluster/test_cluster.py"
CONFORMANCE = TESTS / "cluster/test_api_conformance.py"
RIGHTS = E2E / "test_rights.py"
SHARES = {
    "driver and kubelet restarted": (
        "guide_daemonset",
        "kubelet_*",
        "node_without_npus",
        "restarts",
        "rolling_update",
    ),
    "claims and faults": ("claims_*", "faults*", "refusals", "unhealthy_npu"),
    "device plugin": ("device_plugin*", "doctor", "mindcluster", "migration"),
    "another version, another board": (
        "boards",
        "modules",
        "partitions",
        "sharing",
        "upgrade",
        "vnpus",
    ),
}
"""Which files make a session on the default version, so that all take about as long; the files
that are not named here make another one."""
NOTHING_CHOSEN = 5
"""pytest's status if no test was left, which may be what the arguments say."""
WATCHES = 20
"""Instances of inotify that the programs of a cluster may have; 14 are usual, 22 with a second
node, and Linux gives all processes of a user 128 as a rule."""
MEMORY = 2 << 30
"""Bytes that a cluster and its session may take; half of it is usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run of pytest: what it shows, and its arguments."""

    title: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a part of the run went; in words, and `seconds` since the run began."""

    title: str
    word: str
    began: float
    ended: float


def sessions_of(release: Release, rights: Path) -> list[Session]:
    """What is run on a version: all tests on the default one, elsewhere those that may differ.

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
    shares = {
        title: sorted(path for name in names for path in E2E.glob(f"test_{name}.py"))
        for title, names in SHARES.items()
    }
    taken = {RIGHTS, *(path for share in shares.values() for path in share)}
    shares["all others"] = [CLUSTER, *sorted(set(E2E.glob("test_*.py")) - taken)]
    sessions = [
        Session(
            title=f"Kubernetes {version}: {title}",
            arguments=(*map(str, share), str(RIGHTS), f"--rights={rights}"),
        )
        for title, share in shares.items()
    ]
    conformance = Session(
        title=f"Kubernetes {version}: conformance of the API server", arguments=(str(CONFORMANCE),)
    )
    return [*sessions, conformance]


def last_session(rights: Path) -> Session:
    """The session that needs the results of all tests of the default version."""
    return Session(
        title="unused rights",
        arguments=(f"{RIGHTS}::test_no_right_is_idle", f"--rights={rights}"),
    )


def on_kind() -> Session:
    """All tests in one session: docker and kind's nodes are one."""
    return Session(title="kind", arguments=("--on=kind", "tests/e2e"))


def at_once() -> int:
    """How many clusters this machine has room for."""
    text = Path("/proc/meminfo").read_text()
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None, "Linux says what memory is available"
    watches = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    return max(1, min(int(found[1]) * 1024 // MEMORY, watches // WATCHES))


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

    def run_all(self) -> bool:
        """Build one version after another, and begin with its tests while the next is built."""
        with (
            tempfile.TemporaryDirectory() as temp,
            ThreadPoolExecutor(at_once()) as beside,
        ):
            rights = Path(temp)
            running: list[Future[bool]] = []
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
    parser.add_argument("--on", choices=("built", "kind"))
    chosen, further = parser.parse_known_args(arguments)
    suite = Suite(further)
    if chosen.on == "kind" or (chosen.on is None and kind.usable()):
        print("the cluster is kind's", flush=True)
        if not kind.usable():
            packages.install(*engine.PACKAGES)
        passed = suite.run(on_kind())
    else:
        print("the clusters are built here, for docker and kind are not", flush=True)
        packages.install()
        images.tidy()
        passed = suite.run_all()
    suite.show()
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
