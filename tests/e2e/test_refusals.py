"""What a pod's owner reads when a claim cannot be prepared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster import deploy
from dev.cluster.driver import Driver
from dev.cluster.processes import ClusterError
from dev.config.cases import GOOD, named, with_env
from tests.e2e.space import CLASS, Space, admit, claim, pod, request

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

UNKNOWN_FIELD = GOOD | {"sharingMode": "always"}
POLICY = "ascend-npu-dra-config"


@pytest.fixture
def unjudged(driver: Driver) -> Iterator[None]:
    """A cluster whose administrator left our policy for configs out."""
    cluster, wrong = driver.cluster, claim("judged", parameters=UNKNOWN_FIELD)

    def judged() -> bool:
        try:
            admit(cluster, wrong)
        except ClusterError as refusal:
            return POLICY in str(refusal)
        return False

    cluster.remove("validatingadmissionpolicybinding", POLICY)
    cluster.wait(lambda: not judged(), "the policy without effect")
    yield
    deploy.apply(cluster)
    cluster.wait(judged, "the policy with effect")


def test_pod_is_told_that_its_device_does_not_exist(driver: Driver, space: Space) -> None:
    """A claim that names a device which the node does not have: the events say so."""
    space.apply(claim("npu"), pod("user", "npu", is_gated=True))
    space.allocate("npu", "user", npu="npu-99")
    space.ungate("user")

    event = space.wait_event("user", "FailedPrepareDynamicResources", "npu-99")
    assert f"device npu-99 does not exist on node {driver.cluster.node.name} any more" in event
    assert driver.traces() == []


@pytest.mark.usefixtures("unjudged")
def test_pod_is_told_which_field_of_its_config_is_wrong(driver: Driver, space: Space) -> None:
    """An opaque config with a field that the driver does not know: the events name it."""
    space.apply(claim("npu", parameters=UNKNOWN_FIELD), pod("user", "npu"))
    event = space.wait_event("user", "FailedPrepareDynamicResources", "sharingMode")
    assert "opaque config in the ResourceClaim" in event
    assert driver.traces() == []


def test_pod_is_told_that_two_requests_contradict_each_other(driver: Driver, space: Space) -> None:
    """A variable with two values, one for each request: the events name both."""
    wanted = claim("npu", request("left"), request("right"))
    wanted["spec"]["devices"]["config"] = [
        {"requests": [name], "opaque": {"driver": CLASS, "parameters": with_env(named("A", value))}}
        for name, value in (("left", "1"), ("right", "2"))
    ]
    space.apply(wanted, pod("user", "npu"))
    event = space.wait_event("user", "FailedPrepareDynamicResources", "left and right")
    assert 'set env A to "1" and "2"' in event
    assert driver.traces() == []
