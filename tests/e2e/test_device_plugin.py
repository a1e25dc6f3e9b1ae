"""NPUs as devices of a device plugin resource, asked for as with Huawei's device plugin."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from dev.cluster.api import Object
from dev.cluster.cluster import NodeAccess
from dev.cluster.driver import NPUS, Driver
from tests.e2e import churn
from tests.e2e.boards import laid_out
from tests.e2e.faults import KEEPS_PODS
from tests.e2e.resources import RESOURCE, Plugin, asking, assert_run_on, start, user
from tests.e2e.space import ENDS_AT_ONCE, Space, placed, pod
from trio_npu_dra.lab.simulator import Severity, load_profile

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plugin(driver: Driver) -> Iterator[Plugin]:
    """The plugin is off at first; at the end it is turned off, and nothing of it is left."""
    plugin = Plugin(driver)
    yield plugin
    plugin.turn_off()
    driver.cluster.wait(lambda: not driver.pod_records(), "no record of a pod")
    driver.cluster.wait(lambda: not driver.has_devices_file(), "no CDI file of the resource")


def test_no_npu_twice_while_both_kinds_of_pods_churn(
    plugin: Plugin,
    driver: Driver,
    space: Space,
    notes: list[str],
    pytestconfig: pytest.Config,
) -> None:
    """Each kind has four NPUs; no pod is stuck, and all NPUs are where they were."""
    began = time.monotonic()
    plugin.turn_on(churn.SELECTOR, pool=len(churn.OF_POOL))
    plugin.wait_allocatable(len(churn.OF_RESOURCE))
    with churn.churning(space, driver.node) as pods:
        done = churn.disturb(driver, pods, pytestconfig.getoption("--churn-seconds"))
    plugin.wait_allocatable(len(churn.OF_RESOURCE))
    driver.wait_published(devices=len(churn.OF_POOL))
    driver.wait_without_traces()
    every = churn.opened(pods)
    notes.append(
        f"{time.monotonic() - began:6.1f} s  {dict(done)}, {len(pods.counts)} pods: "
        f"{len(every)} had NPUs, {dict(pods.ends)}"
    )
    churn.judge(pods, every)


@pytest.mark.every_version
def test_npu_comes_to_the_resource_when_its_claim_ends(plugin: Plugin, space: Space) -> None:
    """Before, no pod can get it: it is tainted or, where taints are dropped, not published."""
    space.start("holder")
    keeps_taints = "\nnpu_dra_server_keeps_taints 1" in plugin.driver.page("/metrics")
    published = space.allocated("holder") if keeps_taints else []
    plugin.turn_on(pool=len(published))
    assert list(plugin.driver.devices()) == published
    plugin.wait_allocatable(NPUS - 1)
    assert len(space.seen_npus("holder")) == 1
    space.delete_pod("holder")
    space.delete("resourceclaim", "holder")
    plugin.driver.wait_published(devices=0)
    plugin.wait_allocatable(NPUS)


@pytest.mark.every_version
def test_pod_with_two_gets_two_that_are_near(plugin: Plugin, space: Space) -> None:
    """It has them by CDI: device nodes, libraries and npu-smi, without the Ascend runtime."""
    plugin.turn_on()
    plugin.wait_allocatable(NPUS)
    start(space, train=2)
    assert len(space.seen_npus("train")) == 2
    assert space.davinci_nodes("train") == ["/dev/davinci0", "/dev/davinci2"]  # of one NUMA node
    assert space.execute("train", "printenv", "ASCEND_VISIBLE_DEVICES").strip() == "void"


@pytest.mark.every_version
def test_init_container_that_goes_on_has_an_npu_of_its_own(plugin: Plugin, space: Space) -> None:
    """It gets the NPU of the init container that has ended; the main container gets another."""
    plugin.turn_on()
    plugin.wait_allocatable(NPUS)
    look = "ls -d /dev/davinci[0-9]*"
    begins = asking("begins", 1, command=("sh", "-c", look))
    goes_on = asking("goes-on", 1, command=("sh", "-c", f"{look}; {ENDS_AT_ONCE[-1]}"))
    goes_on["restartPolicy"] = "Always"
    space.apply(pod("train", containers=[asking("main", 1)], init_containers=[begins, goes_on]))
    space.wait_phase("train")
    assert space.log("train", "begins") == space.log("train", "goes-on")
    assert space.log("train", "begins").split() != space.davinci_nodes("train", container="main")


@pytest.mark.every_version
def test_unhealthy_npu_is_not_given_out(plugin: Plugin, driver: Driver, space: Space) -> None:
    """Allocatable falls and rises; a pod that has the NPU keeps it, and its status says it.

    A pod that does not start has such a status too. The ledger names both pods soon.
    """
    plugin.turn_on()
    plugin.wait_allocatable(NPUS)
    stuck = user("stuck", 1)
    stuck["spec"]["containers"][0]["image"] = "no-such-image"
    space.apply(stuck)
    before = start(space, train=1)
    chips = {name: chip_of(space, name) for name in ("train", "stuck")}
    with driver.board() as board:
        for chip in chips.values():
            board.add_fault(chip, KEEPS_PODS, Severity.CRITICAL)
        for name in chips:
            space.wait(
                partial(has_health, space, name, "Unhealthy"), f"an unhealthy NPU of pod {name}"
            )
        plugin.wait_allocatable(NPUS - 2)
        assert plugin.amount("capacity") == NPUS
        assert_run_on(space, before)
        board.clear_fault(chips["stuck"], KEEPS_PODS)
        plugin.wait_allocatable(NPUS - 1)
        board.clear_fault(chips["train"], KEEPS_PODS)
        plugin.wait_allocatable(NPUS)
    space.wait(partial(has_health, space, "train", "Healthy"), "a pod with an NPU that is well")
    holders = {f"npu-{chip}": name for name, chip in chips.items()}
    space.wait(lambda: holders.items() <= driver.pod_holders().items(), f"records of {holders}")


def allocated(space: Space, name: str) -> Object:
    """The device in a pod's status; empty at first."""
    about = space.get("pod", name) or {}
    for state in about["status"].get("containerStatuses", []):
        for status in state.get("allocatedResourcesStatus", []):
            (found,) = status["resources"]
            assert status["name"] == RESOURCE
            return dict(found)
    return {}


def chip_of(space: Space, name: str) -> int:
    """Wait until a pod's status has its chip; returns the chip."""
    found = space.wait(lambda: allocated(space, name), f"the device of pod {name}")
    return int(found["resourceID"].removeprefix("Ascend910-"))


def has_health(space: Space, name: str, health: str) -> bool:
    """Whether the pod's status says so of its device."""
    return bool(allocated(space, name)["health"] == health)


@pytest.mark.every_version
def test_eight_pods_have_eight_whatever_restarts(
    plugin: Plugin, driver: Driver, space: Space
) -> None:
    """Kubelet, daemon, both at once, and containers; pods run on, no NPU is given twice.

    Containers restart last: a kubelet that starts may take a dead one of a pod for the pod's only
    one, and refuse the pod while no plugin is registered. One pod loses its container while neither
    kubelet nor daemon is there: the kubelet refuses it, and its NPU is for another. One has
    succeeded before, and stays so.
    """
    plugin.turn_on()
    plugin.wait_allocatable(NPUS)
    done = user("done", 1, command=("true",))
    done["spec"]["restartPolicy"] = "Never"
    space.apply(done)
    start(space, a=1, b=1, lost=1)
    nodes = {name: space.davinci_nodes(name) for name in ("a", "b")}
    # Otherwise the kubelet would admit it again after its restart, without a registered plugin.
    space.wait_phase("done", "Succeeded")

    times = plugin.registrations()
    driver.cluster.node.restart_kubelet()
    plugin.wait_registered(times + 1)
    before = {name: space.wait_phase(name) for name in nodes} | start(space, c=1, d=1)

    driver.kill()
    plugin.wait_registered(1)
    before |= start(space, e=1, f=1)

    driver.cluster.node.kill_kubelet()
    driver.kill_only()
    space.kill_only("lost")
    driver.cluster.node.start_kubelet()
    refused = space.wait_phase("lost", "Failed")
    assert refused["status"]["reason"] == "UnexpectedAdmissionError"
    driver.wait_registered()
    plugin.wait_registered(1)
    plugin.wait_allocatable(NPUS)
    before |= start(space, g=1, h=1)

    assert_run_on(space, before)
    see = {
        name: driver.cluster.wait_ok(partial(space.davinci_nodes, name), f"exec in {name}")
        for name in before
    }
    assert see == see | nodes
    every = [node for nodes in see.values() for node in nodes]
    assert sorted(every) == [f"/dev/davinci{number}" for number in range(NPUS)]
    for name, had in nodes.items():  # its new container gets what the kubelet remembers
        space.kill(name)
        assert space.davinci_nodes(name) == had
    space.wait_phase("done", "Succeeded")
    space.apply(user("ninth", 1))
    space.wait_event("ninth", "FailedScheduling", RESOURCE)


@pytest.mark.every_version
def test_two_npus_are_of_one_ring(
    plugin: Plugin, driver: Driver, second_node: NodeAccess, space: Space
) -> None:
    """The rings are chips 0 to 3 and 4 to 7; the first two free chips would be of both rings."""
    plugin.turn_on()
    with laid_out(driver, second_node, load_profile("910a-8"), in_pool=False) as there:
        Plugin(there).wait_allocatable(8)
        given = {}
        for name, count in (("three", 3), ("pair", 2), ("last", 1)):
            space.apply(placed(user(name, count), second_node))
            space.wait_phase(name)
            given[name] = [int(node[12:]) for node in space.davinci_nodes(name)]
        assert given == {"three": [0, 1, 2], "pair": [4, 5], "last": [3]}
        assert len(space.seen_npus("pair")) == 2
        space.clear()


@pytest.mark.every_version
def test_npu_comes_to_the_pool_when_its_pod_has_ended(
    plugin: Plugin, driver: Driver, space: Space
) -> None:
    """Before, it is in neither place, and the pod runs on.

    The kubelet does not report the end of a pod; here it was away when the pod was deleted.
    """
    plugin.turn_on()
    plugin.wait_allocatable(NPUS)
    before = start(space, train=1)
    (node,) = space.davinci_nodes("train")
    plugin.turn_off(pool=NPUS - 1)
    assert node.replace("/dev/davinci", "npu-") not in driver.devices()
    assert_run_on(space, before)
    assert len(space.seen_npus("train")) == 1
    plugin.wait_allocatable(0)

    driver.cluster.node.kill_kubelet()
    try:
        space.delete("pods", "train", grace=0)
    finally:
        driver.cluster.node.start_kubelet()
    driver.wait_published()
    assert driver.pod_records() == []
