"""The driver and the kubelet end and come back while pods run."""

from __future__ import annotations

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import Driver
from tests.e2e.space import Space, claim, pod

pytestmark = pytest.mark.cluster


def start_pod(space: Space) -> Object:
    """A running pod with an NPU."""
    space.apply(claim("npu"), pod("user", "npu"))
    return space.wait_phase("user")


def assert_runs_on(space: Space, before: Object) -> None:
    """The container is the same, and sees its NPU."""
    after = space.wait_phase("user")
    states = [one["status"]["containerStatuses"][0] for one in (before, after)]
    assert states[0]["containerID"] == states[1]["containerID"]
    assert len(space.seen_npus("user")) == 1


def assert_new_pod_gets_an_npu(space: Space) -> None:
    """The node still does its work."""
    space.apply(claim("later"), pod("later", "later"))
    space.wait_phase("later")
    assert space.allocated("later") != space.allocated("npu")
    assert len(space.seen_npus("later")) == 1


@pytest.mark.every_version
def test_killed_driver_finds_everything_as_it_was(driver: Driver, space: Space) -> None:
    """After kill -9 pods run on, slices are not written, and the claim can be given back."""
    before = start_pod(space)
    versions, traces = driver.versions(), driver.traces()
    mark = driver.cluster.audit_mark()
    driver.kill()

    assert_runs_on(space, before)
    assert_new_pod_gets_an_npu(space)
    space.delete_pod("later")
    driver.cluster.wait(lambda: driver.traces() == traces, "only the first pod's traces")
    space.delete_pod("user")
    driver.wait_without_traces()
    assert driver.versions() == versions
    assert driver.writes(mark) == []


def test_update_of_the_driver_writes_no_slice(driver: Driver, space: Space) -> None:
    """A rollout replaces the driver's pod: pods run on and slices stay as they are."""
    before = start_pod(space)
    versions = driver.versions()
    mark = driver.cluster.audit_mark()
    driver.restart()

    assert_runs_on(space, before)
    assert_new_pod_gets_an_npu(space)
    assert driver.versions() == versions
    assert driver.writes(mark) == []


@pytest.mark.every_version
def test_restarted_kubelet_finds_the_driver(driver: Driver, space: Space) -> None:
    """The kubelet deletes the slices at its start; they come back, and the pod has run on."""
    before = start_pod(space)
    old = set(driver.versions())
    registrations = driver.registrations()
    driver.cluster.node.restart_kubelet()

    driver.cluster.wait(
        lambda: bool(driver.versions()) and old.isdisjoint(driver.versions()), "new slices"
    )
    driver.wait_published()
    driver.wait_registered(registrations + 1)
    driver.cluster.wait_ok(lambda: assert_runs_on(space, before), "exec after the restart")
    assert_new_pod_gets_an_npu(space)
    for name in ("user", "later"):
        space.delete_pod(name)
    driver.wait_without_traces()


def test_claim_of_a_pod_deleted_while_the_driver_was_away(driver: Driver, space: Space) -> None:
    """A pod that is deleted while the driver restarts is gone soon after the driver is back."""
    start_pod(space)
    space.begin_delete("pod", "user")
    driver.kill()
    space.wait(lambda: space.get("pod", "user") is None, "the pod gone")
    driver.wait_without_traces()
