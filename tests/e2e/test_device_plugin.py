"""NPUs as devices of a device plugin resource, asked for as with Huawei's device plugin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from tests.cluster.api import Object
from tests.cluster.processes import ClusterError
from tests.e2e.driver import NPUS, Driver
from tests.e2e.faults import KEEPS_PODS
from tests.e2e.space import Space, claim, pod
from trio_npu_dra.simulator import Severity

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

RESOURCE = "huawei.com/Ascend910"
FLAG = "NPU_DRA_DEVICE_PLUGIN"


@dataclass
class Plugin:
    """The driver's device plugin, which most of these tests need; the first one turns it on."""

    driver: Driver
    is_on: bool = False

    def turn_on(self, *, pool: int = 0) -> None:
        """All NPUs are for the resource; so many claims still hold one."""
        if not self.is_on:
            self.is_on = True
            self.driver.set_environment(f"{FLAG}=all", devices=pool)

    def turn_off(self, *, pool: int = NPUS) -> None:
        """All NPUs are for the pool; the pool has so many of them."""
        if self.is_on:
            self.driver.set_environment(f"{FLAG}-", devices=pool)
            self.is_on = False

    def wait_allocatable(self, count: int) -> None:
        """Wait until the scheduler may give so many to pods."""

        def seen() -> bool:
            node = self.driver.cluster.get("node", self.driver.node.name) or {}
            return bool(node["status"]["allocatable"].get(RESOURCE, "0") == str(count))

        self.driver.cluster.wait(seen, f"{count} of {RESOURCE} allocatable")

    def registrations(self) -> int:
        """How often the kubelet has registered the resource of the daemon that runs now."""
        return self.driver.said(self.driver.wait_ready()).count("device plugin registered")

    def wait_registered(self, times: int) -> None:
        """Wait until the kubelet has registered it so often."""

        def registered() -> bool:
            try:
                return self.registrations() >= times
            except ClusterError:  # the kubelet is away, or the pod between two containers
                return False

        self.driver.cluster.wait(registered, f"the resource registered {times} times")


@pytest.fixture(scope="module")
def plugin(driver: Driver) -> Iterator[Plugin]:
    """Off at first, and off at the end."""
    plugin = Plugin(driver)
    yield plugin
    plugin.turn_off()


def user(name: str, count: int) -> Object:
    """A pod as its users have it today."""
    about = pod(name)
    amount = {RESOURCE: str(count)}
    about["spec"]["containers"][0]["resources"] = {"limits": amount, "requests": amount}
    about["spec"]["restartPolicy"] = "Always"
    return about


def start(space: Space, **counts: int) -> dict[str, Object]:
    """Pods that run with so many NPUs each."""
    space.apply(*(user(name, count) for name, count in counts.items()))
    return {name: space.wait_phase(name) for name in counts}


def assert_runs_on(space: Space, before: dict[str, Object]) -> None:
    """The containers are the same."""
    for name, about in before.items():
        states = (about, space.wait_phase(name))
        first, now = (each["status"]["containerStatuses"][0] for each in states)
        assert first["containerID"] == now["containerID"]


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
