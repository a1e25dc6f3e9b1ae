"""The whole suite on every cluster that this machine can have: `python -m tests.e2e`.

Arguments go to each run of pytest. What it ran on and how long it took is printed at the end.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.cluster import packages
from tests.cluster.binaries import containerd, kubernetes
from tests.cluster.releases import DEFAULT, RELEASES
from tests.kind import cluster as kind

NOTHING_CHOSEN = 5
"""pytest's status if no test was left, which may be what the arguments say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of pytest: what it shows, and its arguments."""

    title: str
    arguments: tuple[str, ...]


def runs(*, on_kind: bool) -> list[Run]:
    """All tests once, and then those that may differ on the other versions."""
    if on_kind:
        return [Run(title="kind", arguments=("--on=kind", "tests/e2e"))]
    every = Run(title=f"Kubernetes {DEFAULT}: all tests", arguments=("tests/cluster", "tests/e2e"))
    others = [
        Run(
            title=f"Kubernetes {version}: tests of every version",
            arguments=(
                *("tests/cluster", "tests/e2e", "-m", "every_version"),
                *("--kubernetes-version", version),
            ),
        )
        for version in RELEASES
        if version != DEFAULT
    ]
    return [every, *others]


def prepare() -> None:
    """Install and build what the clusters of this machine are made of."""
    packages.install()
    for release in RELEASES.values():
        kubernetes(release.kubernetes).ready()
        containerd(release.containerd).ready()


def main(arguments: Sequence[str]) -> int:
    """Run it all; returns 1 if a run failed."""
    on_kind = kind.usable()
    chosen = (
        "kind's, for docker and kind are here"
        if on_kind
        else "built on this machine, for docker and kind are not here"
    )
    print(f"the clusters are {chosen}", flush=True)
    rows = []
    if not on_kind:
        began = time.monotonic()
        prepare()
        rows.append((time.monotonic() - began, "ready", "packages, Kubernetes and containerd"))
    allowed = {0, NOTHING_CHOSEN} if arguments else {0}
    failed = False
    for run in runs(on_kind=on_kind):
        print(f"\n=== {run.title}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *run.arguments, *arguments]
        passed = subprocess.run(command, check=False).returncode in allowed
        rows.append((time.monotonic() - began, "passed" if passed else "FAILED", run.title))
        failed = failed or not passed
    print()
    for seconds, verdict, title in rows:
        print(f"{seconds:6.0f} s  {verdict:7} {title}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
