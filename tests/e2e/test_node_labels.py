"""Labels of Nodes: what the driver writes with the rights of k8s/node-labels, and no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster.api import ApiServer, Object
from dev.cluster.cluster import NodeAccess
from dev.cluster.driver import DRIVER, Driver
from dev.cluster.processes import ClusterError
from tests.e2e.boards import laid_out
from tests.e2e.labels import labelled, labels
from trio_npu_dra.agent.report.node_labels import SUPER_POD
from trio_npu_dra.lab.simulator import load_profile

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def a3(driver: Driver, second_node: NodeAccess) -> Iterator[Driver]:
    """The driver with the flag, and an A3 on the second node; at the end no label is left."""
    with labelled(driver), laid_out(driver, second_node, load_profile("a3-16")) as there:
        yield there


def test_each_node_says_which_npus_it_has(a3: Driver, driver: Driver) -> None:
    """As soon as they are published; a restart writes nothing."""
    own = {"chip": "910B4", "count": "8", "driver-version": "24.1.rc2", "model": "Ascend910B"}
    assert labels(driver) == {f"{DRIVER}/{name}": value for name, value in own.items()}
    there = labels(a3)
    assert there == there | {SUPER_POD: "7", f"{DRIVER}/count": "16"}
    since = driver.cluster.audit_mark()
    driver.restart()
    assert driver.writes(since) == []


def test_agent_labels_no_other_node_and_with_no_other_label(
    a3: Driver, driver: Driver, agent: ApiServer
) -> None:
    """The policy narrows what RBAC gives, by the token of the agent on the first node."""
    wrong: list[tuple[Driver, Object, str]] = [
        (a3, {"labels": {SUPER_POD: "9"}}, "may only write to that node"),
        (driver, {"labels": {"team": "mine"}}, "may not write this label"),
        (driver, {"labels": {"kubernetes.io/os": None}}, "may not write this label"),
        (driver, {"labels": {f"{DRIVER}/simulator": None}}, "may not write this label"),
    ]
    for each, metadata, words in wrong:
        with pytest.raises(ClusterError, match=words):
            agent.patch("node", each.node.name, change={"metadata": metadata})
    agent.patch("node", driver.node.name, change={"metadata": {"labels": {f"{DRIVER}/count": "8"}}})
