"""The Events of a pod whose claim cannot be prepared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster import deploy
from dev.cluster.driver import BOARD, Driver
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


@pytest.mark.usefixtures("unjudged")
def test_event_names_the_wrong_field_of_a_config(driver: Driver, space: Space) -> None:
    """An opaque config has a field that the driver does not know."""
    space.apply(claim("npu", parameters=UNKNOWN_FIELD), pod("user", "npu"))
    event = space.wait_event("user", "FailedPrepareDynamicResources", "sharingMode")
    assert "opaque config in the ResourceClaim" in event
    assert driver.traces() == []


def test_event_names_two_requests_that_contradict_each_other(driver: Driver, space: Space) -> None:
    """A variable has two values, one for each request."""
    wanted = claim("npu", request("left"), request("right"))
    wanted["spec"]["devices"]["config"] = [
        {"requests": [name], "opaque": {"driver": CLASS, "parameters": with_env(named("A", value))}}
        for name, value in (("left", "1"), ("right", "2"))
    ]
    space.apply(wanted, pod("user", "npu"))
    event = space.wait_event("user", "FailedPrepareDynamicResources", "left and right")
    assert 'set env A to "1" and "2"' in event
    assert driver.traces() == []


def test_event_names_what_the_host_lacks_and_the_pod_starts_when_it_is_there(
    driver: Driver, space: Space
) -> None:
    """As while the Ascend driver is updated; the kubelet asks again by itself."""
    place = driver.node.root / BOARD.relative_to("/") / "usr/local/Ascend/driver"
    away = place.rename(place.with_name("away"))
    try:
        space.apply(claim("npu"), pod("user", "npu"))
        missing = "/usr/local/Ascend/driver/lib64/ is missing on the node"
        space.wait_event("user", "FailedPrepareDynamicResources", missing)
        assert driver.traces() == []
    finally:
        away.rename(place)
    space.wait_phase("user")
    assert len(space.seen_npus("user")) == 1
