"""The limits of an agent that an attacker has taken over, and the admission of configs."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.api import ApiServer, Object
from dev.cluster.driver import DRIVER, Driver
from dev.cluster.processes import ClusterError
from dev.config.cases import CASES, Case, named, with_env
from tests.e2e.modes import assert_as_documented
from tests.e2e.space import Space, admit, claim, claim_template, device_class

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

ELSEWHERE = "other-node"


def slice_of(node: str) -> Object:
    """A slice like ours for a node."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"e2e-{node}"},
        "spec": {"nodeName": node, "driver": DRIVER, "pool": pool, "devices": []},
    }


@pytest.fixture
def foreign(driver: Driver) -> Iterator[Object]:
    """A stored slice of this driver on another node, put there by the administrator."""
    cluster = driver.cluster
    cluster.apply(json.dumps(slice_of(ELSEWHERE)))
    stored = cluster.get("resourceslice", f"e2e-{ELSEWHERE}")
    assert stored is not None
    yield stored
    cluster.remove("resourceslice", f"e2e-{ELSEWHERE}")


# --- slices --------------------------------------------------------------------------------------


def test_agent_does_not_touch_another_nodes_slice(
    agent: ApiServer, driver: Driver, foreign: Object
) -> None:
    """It can neither replace it, nor make it its own, nor delete it."""
    words = "may only write the slices of that node"
    with pytest.raises(ClusterError, match=words):
        agent.replace(foreign, dry_run=True)
    with pytest.raises(ClusterError, match=words):
        agent.delete("resourceslice", foreign["metadata"]["name"], dry_run=True)
    taken = copy.deepcopy(foreign)
    taken["spec"]["nodeName"] = driver.cluster.node.name
    with pytest.raises(ClusterError, match=r"may only write|immutable"):
        agent.replace(taken, dry_run=True)


def test_token_without_a_node_writes_nothing(driver: Driver) -> None:
    """A token of the account that is bound to no pod is of no use for slices."""
    (published,) = driver.slices()
    words = "this token names no node"
    with driver.asked_with_token(is_bound=False) as unbound:
        with pytest.raises(ClusterError, match=words):
            unbound.create(slice_of(driver.cluster.node.name), dry_run=True)
        with pytest.raises(ClusterError, match=words):
            unbound.replace(published, dry_run=True)
        with pytest.raises(ClusterError, match=words):
            unbound.delete("resourceslice", published["metadata"]["name"], dry_run=True)


def test_agent_removes_foreign_slices_from_its_pool(driver: Driver) -> None:
    """It deletes a slice of its driver on its node that it did not publish."""
    before = driver.versions()
    stray = slice_of(driver.cluster.node.name)
    driver.cluster.apply(json.dumps(stray))
    driver.cluster.wait(lambda: driver.versions().keys() == before.keys(), "only its own slices")


# --- Events --------------------------------------------------------------------------------------


def event(node: str, component: str) -> Object:
    """An Event about a Node by that component on it."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e2e", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": "e2e"},
        "type": "Warning",
        "reason": "NpuFault",
        "message": "npu-0: fault",
        "source": {"component": component, "host": node},
        "reportingComponent": component,
        "reportingInstance": node,
    }


def test_agent_changes_no_event_of_another_component(agent: ApiServer, driver: Driver) -> None:
    """An Event of the kubelet cannot be made its own."""
    cluster, node = driver.cluster, driver.cluster.node.name
    cluster.apply(json.dumps(event(node, "kubelet")))
    try:
        with pytest.raises(ClusterError, match=r"Events of npu\.huawei\.com on"):
            agent.replace(event(node, DRIVER), dry_run=True)
    finally:
        cluster.remove("event", "e2e")


# --- opaque configs ------------------------------------------------------------------------------


def in_claim(parameters: Object) -> Object:
    """A claim with that config."""
    return claim("configured", parameters=parameters)


def in_template(parameters: Object) -> Object:
    """A claim template with that config."""
    return claim_template("configured", in_claim(parameters))


def in_class(parameters: Object) -> Object:
    """A device class with that config."""
    config = {"opaque": {"driver": DRIVER, "parameters": parameters}}
    return device_class("configured", "true", config=[config])


@pytest.mark.parametrize("place", [in_claim, in_template, in_class])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_config_is_judged_when_it_is_written(driver: Driver, case: Case, place: Any) -> None:
    """The API server refuses a wrong config and names the field; a right one is taken."""
    about = place(case.parameters)
    if not case.words:
        assert admit(driver.cluster, about)["spec"]
        return
    with pytest.raises(ClusterError) as caught:
        admit(driver.cluster, about)
    assert case.is_named(str(caught.value).partition("denied request: ")[2])


def test_large_configs_are_judged(driver: Driver) -> None:
    """As many as an object may have, each almost as long as it may be: CEL has a budget."""
    variables = [named(f"V{number:03}" + "x" * 90, "y" * 150) for number in range(32)]
    about = in_class(with_env(*variables))
    config = about["spec"]["config"]
    config *= 32
    assert admit(driver.cluster, about)["spec"]
    config[-1] = in_class(with_env(*variables[1:], variables[-1]))["spec"]["config"][0]
    with pytest.raises(ClusterError, match="write each name once"):
        admit(driver.cluster, about)


def test_policies_compile(driver: Driver) -> None:
    """The API server warns of no expression of our policies."""
    policies = driver.cluster.objects("validatingadmissionpolicies", namespace=None)
    ours = [each for each in policies if each["metadata"]["name"].startswith("ascend-npu-dra-")]
    assert ours
    for policy in ours:
        warnings = policy.get("status", {}).get("typeChecking", {}).get("expressionWarnings", [])
        assert warnings == []


# --- the node ------------------------------------------------------------------------------------


def test_files_have_the_documented_modes(driver: Driver, space: Space) -> None:
    """The driver's files have the documented permissions while a pod holds an NPU."""
    space.start("user")
    assert_as_documented(driver)


def test_container_is_as_documented(driver: Driver) -> None:
    """All capabilities in the host's user namespace, no seccomp filter, a read-only root."""
    process = Path(f"/proc/{driver.pid()}")
    status = dict(re.findall(r"^(\w+):\s+(.*)$", (process / "status").read_text(), re.MULTILINE))
    own = dict(re.findall(r"^(\w+):\s+(.*)$", Path("/proc/self/status").read_text(), re.MULTILINE))
    assert status["CapEff"] == own["CapBnd"], "all that this machine has"
    assert status["Seccomp"] == own["Seccomp"], "no filter besides this machine's"
    assert (process / "ns/user").readlink() == Path("/proc/self/ns/user").readlink()
    (root,) = [
        line.split()[5]
        for line in (process / "mountinfo").read_text().splitlines()
        if line.split()[4] == "/"
    ]
    assert "ro" in root.split(",")
