"""The fixtures `cluster` and those of further nodes: one cluster a session, for all its folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dev.cluster.built import BuiltCluster
from dev.cluster.cluster import Cluster, NodeAccess
from dev.cluster.releases import DEFAULT, RELEASES
from dev.kind.cluster import KindCluster

LOGS = pytest.StashKey[Path]()
FURTHER_NODES = ("second_node", "third_node")
"""The fixtures of nodes besides the first."""
MARKERS = (
    "cluster: needs a real Kubernetes node (root, minutes)",
    "every_version: what it tests may differ between versions of Kubernetes or containerd",
    "since(version): needs what Kubernetes has by default from that version on ('1.36')",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the cluster and its version."""
    parser.addoption(
        "--on",
        default="built",
        choices=("built", "kind"),
        help="the cluster: built from modules on this machine (default), or kind's",
    )
    parser.addoption(
        "--kubernetes-version",
        default=DEFAULT,
        choices=sorted(RELEASES),
        help=f"the Kubernetes that is built (default {DEFAULT}); kind brings its own",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of features that the chosen version does not have yet."""
    version = _parts(config.getoption("--kubernetes-version"))
    late = [
        item
        for item in items
        if any(_parts(mark.args[0]) > version for mark in item.iter_markers("since"))
    ]
    config.hook.pytest_deselected(items=late)
    items[:] = [item for item in items if item not in late]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the logs of a cluster with failed tests are."""
    logs = terminalreporter.config.stash.get(LOGS, None)
    if logs:
        terminalreporter.write_line(f"logs of the cluster: {logs}")


@pytest.fixture(scope="session")
def kubernetes_version(pytestconfig: pytest.Config) -> str:
    """The chosen version."""
    version: str = pytestconfig.getoption("--kubernetes-version")
    return version


@pytest.fixture(scope="session")
def cluster(kubernetes_version: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running cluster; its logs stay if a test of the session failed."""
    # Those that a test asks for get ready while the driver is built for the first one.
    asked = {name for item in request.session.items for name in _fixtures(item)}
    nodes = 1 + max((n for n, name in enumerate(FURTHER_NODES, 1) if name in asked), default=0)
    running: Cluster
    if request.config.getoption("--on") == "kind":
        running = KindCluster.start(workers=nodes, version=kubernetes_version)
    else:
        running = BuiltCluster.start(kubernetes_version, nodes=nodes)
    try:
        yield running
    finally:
        logs = running.stop(keep_logs=request.session.testsfailed > 0)
        if logs:
            request.config.stash[LOGS] = logs
    left = running.left_behind()
    assert left == [], f"the stopped cluster left behind: {left}"


@pytest.fixture(scope="session")
def second_node(cluster: Cluster) -> NodeAccess:
    """Another node, which sessions have whose tests ask for it; pods must tolerate its taint."""
    return cluster.nodes[1]


@pytest.fixture(scope="session")
def third_node(cluster: Cluster) -> NodeAccess:
    """One more, likewise."""
    return cluster.nodes[2]


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else ()


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
