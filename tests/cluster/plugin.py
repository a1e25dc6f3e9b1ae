"""The fixture `cluster`: one cluster for a whole session, whichever folders' tests use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import leftovers
from tests.cluster.cluster import Cluster
from tests.cluster.releases import DEFAULT, RELEASES

LOGS = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the version be chosen."""
    parser.addoption(
        "--kubernetes-version",
        default=DEFAULT,
        choices=sorted(RELEASES),
        help=f"the Kubernetes the cluster tests run on (default {DEFAULT})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "cluster: needs a real Kubernetes node (root, minutes)")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the logs of a cluster are whose tests failed."""
    logs = terminalreporter.config.stash.get(LOGS, None)
    if logs:
        terminalreporter.write_line(f"logs of the cluster: {logs}")


@pytest.fixture(scope="session")
def kubernetes_version(pytestconfig: pytest.Config) -> str:
    """The version asked for."""
    version: str = pytestconfig.getoption("--kubernetes-version")
    return version


@pytest.fixture(scope="session")
def cluster(kubernetes_version: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running one-node cluster; its logs stay if a test of the session failed."""
    running = Cluster.start(kubernetes_version)
    try:
        yield running
    finally:
        logs = running.stop(keep_logs=request.session.testsfailed > 0)
        if logs:
            request.config.stash[LOGS] = logs
    left = leftovers.find(running.identity)
    assert left == [], f"the stopped cluster left behind: {left}"
