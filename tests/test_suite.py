"""The sessions of the e2e suite."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dev.cluster.releases import DEFAULT, RELEASES
from dev.cluster.suite import (
    CLUSTER,
    CONFORMANCE,
    E2E,
    OWN_DOCKER,
    RIGHTS,
    last_session,
    on_kind,
    part_on_kind,
    sessions_of,
)


def test_suite_runs_once_on_kind() -> None:
    """All tests run in one session."""
    assert on_kind().arguments == ("--on=kind", "tests/e2e")


def test_suite_runs_on_kind_and_on_every_version_that_is_built() -> None:
    """All tests run on the default version, in parallel sessions; on others the marked ones."""
    sessions = {
        version: [each.arguments for each in sessions_of(release, Path("R"))]
        for version, release in RELEASES.items()
    }
    *shares, conformance = sessions.pop(DEFAULT)
    assert conformance == (str(CONFORMANCE),)
    assert {CLUSTER, CONFORMANCE, OWN_DOCKER} == {*CLUSTER.parent.glob("test_*.py")}
    on, *share = part_on_kind(Path("R")).arguments
    assert on == "--on=kind"
    shares.append(tuple(share))
    assert all(share[-2:] == (str(RIGHTS), "--rights=R") for share in shares)
    once = Counter(path for share in shares for path in share[:-2])
    assert once == Counter(map(str, [CLUSTER, *({*E2E.glob("test_*.py")} - {RIGHTS})]))
    assert sessions == {
        version: [
            ("tests/cluster", "tests/e2e", "-m", "every_version", "--kubernetes-version", version)
        ]
        for version in RELEASES.keys() - {DEFAULT}
    }
    judge = f"{RIGHTS}::test_no_right_is_idle"
    assert last_session(Path("R")).arguments == (judge, "--rights=R")
