"""The driver and the kubelet end and come back while pods run."""

from __future__ import annotations

import pytest

from dev.cluster.driver import Driver
from tests.e2e.faults import MOVES_PODS, Faults, number, start_holder
from tests.e2e.space import Space, request

pytestmark = pytest.mark.cluster

LONG_AWAY = '"failures": 16'
"""In the driver's log, after some 45 seconds: the controller manager is then late to come back."""


def assert_new_pod_gets_an_npu(space: Space) -> None:
    """The node still does its work."""
    space.start("later")
    assert space.allocated("later") != space.allocated("user")
    assert len(space.seen_npus("later")) == 1


@pytest.mark.every_version
def test_killed_driver_finds_everything_as_it_was(driver: Driver, space: Space) -> None:
    """After kill -9 pods run on, slices are not written, and the claim can be given back."""
    before = space.start("user")
    versions, traces = driver.versions(), driver.traces()
    mark = driver.cluster.audit_mark()
    driver.kill()

    space.assert_runs_on(before, npus=1)
    assert_new_pod_gets_an_npu(space)
    space.delete_pod("later")
    driver.cluster.wait(lambda: driver.traces() == traces, "only the first pod's traces")
    space.delete_pod("user")
    driver.wait_without_traces()
    assert driver.versions() == versions
    assert driver.writes(mark) == []


@pytest.mark.every_version
def test_restarted_kubelet_finds_the_driver(driver: Driver, space: Space) -> None:
    """The kubelet deletes the slices at its start; they come back, and the pod has run on."""
    before = space.start("user")
    old = set(driver.versions())
    registrations = driver.registrations()
    driver.cluster.node.restart_kubelet()

    driver.cluster.wait(
        lambda: bool(driver.versions()) and old.isdisjoint(driver.versions()), "new slices"
    )
    driver.wait_published()
    driver.wait_registered(registrations + 1)
    driver.cluster.wait_ok(lambda: space.assert_runs_on(before, npus=1), "exec after the restart")
    assert_new_pod_gets_an_npu(space)
    for name in ("user", "later"):
        space.delete_pod(name)
    driver.wait_without_traces()


@pytest.mark.since("1.36")
def test_fault_evicts_after_an_outage_in_which_the_slices_went(
    driver: Driver, faults: Faults, space: Space
) -> None:
    """The kubelet deletes them when the API server is back, before the controller manager looks.

    That knows the old slices, with a taint of a fault that has ended, and only a pool with a higher
    generation makes it forget them: it neither evicts for the old taint nor ignores a new one.
    """
    cluster, device = driver.cluster, start_holder(space)
    faults.begin(device, MOVES_PODS)
    space.wait_gone("user")
    old, generation = set(driver.versions()), newest_generation(driver)
    registrations, away = driver.registrations(), driver.log().count(LONG_AWAY)
    with cluster.api_server_away():
        driver.node.restart_kubelet()
        faults.end(device, MOVES_PODS)
        cluster.wait(lambda: driver.log().count(LONG_AWAY) > away, "a long outage")

    driver.wait_registered(registrations + 1)
    cluster.wait(lambda: old.isdisjoint(driver.versions()), "the old slices gone")
    driver.wait_published()
    assert newest_generation(driver) > generation
    same = f'device.attributes["npu.huawei.com"].physicalId == {number(device)}'
    before = space.start("later", request(cel=same))
    space.assert_runs_on(before, npus=1)
    faults.begin(device, MOVES_PODS)
    space.wait_gone("later")


def newest_generation(driver: Driver) -> int:
    """The generation of the node's pool."""
    return max(int(item["spec"]["pool"]["generation"]) for item in driver.slices())
