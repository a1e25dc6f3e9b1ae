"""NPUs as devices of a device plugin resource, asked for as with Huawei's device plugin."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.e2e.driver import NPUS, Driver
from tests.e2e.faults import KEEPS_PODS
from tests.e2e.resource import RESOURCE, Plugin, assert_runs_on, start, user
from tests.e2e.space import Space, claim, pod
from trio_npu_dra.simulator import Severity

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]


@pytest.fixture(scope="module")
def plugin(driver: Driver) -> Iterator[Plugin]:
    """Off at first, and off at the end."""
    plugin = Plugin(driver)
    yield plugin
    plugin.turn_off()


def test_npu_comes_to_the_resource_when_its_claim_ends(plugin: Plugin, space: Space) -> None:
    """Until then it is in the pool, and no pod can get it."""
    space.apply(claim("npu"), pod("holder", "npu"))
    space.wait_phase("holder")
    plugin.turn_on(pool=1)
    assert list(plugin.driver.devices()) == space.allocated("npu")
    plugin.wait_allocatable(NPUS - 1)
    assert len(space.seen_npus("holder")) == 1
    space.delete_pod("holder")
    space.delete("resourceclaim", "npu")
    plugin.driver.wait_published(devices=0)
    plugin.wait_allocatable(NPUS)


def test_pod_with_two_gets_two_that_are_near(plugin: Plugin, space: Space) -> None:
    """It has them by CDI: device nodes, libraries and npu-smi, without the Ascend runtime."""
    plugin.turn_on()
    plugin.wait_allocatable(NPUS)
    start(space, train=2)
    assert len(space.seen_npus("train")) == 2
    assert space.davinci_nodes("train") == ["/dev/davinci0", "/dev/davinci2"]  # of one NUMA node
    assert space.execute("train", "printenv", "ASCEND_VISIBLE_DEVICES").strip() == "void"


def test_sick_npu_is_not_given_out(plugin: Plugin, driver: Driver, space: Space) -> None:
    """Allocatable falls and rises; who has it keeps it."""
    plugin.turn_on()
    plugin.wait_allocatable(NPUS)
    before = start(space, train=1)
    with driver.board() as board:
        board.add_fault(0, KEEPS_PODS, Severity.CRITICAL)
        plugin.wait_allocatable(NPUS - 1)
        assert_runs_on(space, before)
        board.clear_fault(0, KEEPS_PODS)
        plugin.wait_allocatable(NPUS)


def test_eight_pods_have_eight_whatever_restarts(
    plugin: Plugin, driver: Driver, space: Space
) -> None:
    """Kubelet, daemon, and both at once; pods run on, and no NPU is given twice."""
    plugin.turn_on()
    plugin.wait_allocatable(NPUS)
    before = start(space, a=1, b=1)

    times = plugin.registrations()
    driver.cluster.node.restart_kubelet()
    plugin.wait_registered(times + 1)
    before |= start(space, c=1, d=1)

    driver.kill()
    plugin.wait_registered(1)
    before |= start(space, e=1, f=1)

    driver.cluster.node.kill_kubelet()
    driver.kill_only()
    driver.cluster.node.start_kubelet()
    driver.wait_registered()
    plugin.wait_registered(1)
    plugin.wait_allocatable(NPUS)
    before |= start(space, g=1, h=1)

    assert_runs_on(space, before)
    see = {
        name: driver.cluster.wait_ok(partial(space.davinci_nodes, name), f"exec in {name}")
        for name in before
    }
    every = [node for nodes in see.values() for node in nodes]
    assert sorted(every) == [f"/dev/davinci{number}" for number in range(NPUS)]
    space.kill("a")  # its new container gets what the kubelet remembers
    assert space.davinci_nodes("a") == see["a"]
    space.apply(user("ninth", 1))
    space.wait_event("ninth", "FailedScheduling", RESOURCE)


def test_npu_comes_to_the_pool_when_its_pod_has_ended(
    plugin: Plugin, driver: Driver, space: Space
) -> None:
    """Until then it is in neither place, and the pod runs on.

    The kubelet tells nobody that a pod has ended; here it was away when the pod was deleted.
    """
    plugin.turn_on()
    plugin.wait_allocatable(NPUS)
    before = start(space, train=1)
    (node,) = space.davinci_nodes("train")
    plugin.turn_off(pool=NPUS - 1)
    assert node.replace("/dev/davinci", "npu-") not in driver.devices()
    assert_runs_on(space, before)
    assert len(space.seen_npus("train")) == 1

    driver.cluster.node.kill_kubelet()
    try:
        space.delete("pods", "train", grace=0)
    finally:
        driver.cluster.node.start_kubelet()
    driver.wait_published()
    assert driver.pod_records() == []
