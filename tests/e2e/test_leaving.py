"""NPUs in use while flags change or their chip is gone, and claims that wait for more of them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import yaml

from dev.cluster.api import Object
from dev.cluster.driver import NPUS, Driver
from tests.e2e.partitions import QUARTER, cut_for_claims, partition, vnpus
from tests.e2e.resources import Plugin
from tests.e2e.space import EXAMPLES, Space, claim, is_running, pod

pytestmark = [pytest.mark.cluster, pytest.mark.since("1.36")]

FLAG = "NPU_DRA_PARTITIONING"
HOLDERS = [f"holder-{number}" for number in range(4)]
WAITER = "waiter"


@pytest.fixture(scope="module", autouse=True)
def _cut(driver: Driver) -> Iterator[None]:
    with cut_for_claims(driver) as keeps_counters:
        assert keeps_counters
        yield


@pytest.fixture
def _held(space: Space) -> None:
    """All quarters of the first NPU are in use, and one more pod waits for one."""
    names = [*HOLDERS, WAITER]
    space.apply(*(claim(name, partition(QUARTER)) for name in names))
    space.apply(*(pod(name, name) for name in HOLDERS))
    for name in HOLDERS:
        space.wait_phase(name)
    space.apply(pod(WAITER, WAITER))
    space.assert_waits(WAITER)


def release(driver: Driver, space: Space) -> None:
    """End the holders one by one; the waiting pod gets none of their partitions."""
    for name in HOLDERS:
        space.delete_pod(name)
        space.delete("resourceclaim", name)
        assert space.allocated(WAITER) == []
    driver.wait_without_traces()


@pytest.mark.usefixtures("_held")
def test_partitions_in_use_drain_when_npus_are_cut_no_more(
    driver: Driver, space: Space, notes: list[str]
) -> None:
    """No pod gets one of them again; after the flag is set again the waiting pod runs."""
    began = time.monotonic()
    driver.set_environment(f"{FLAG}-", devices=NPUS - 1)
    release(driver, space)
    driver.wait_published()
    assert vnpus(driver) == []
    drained = time.monotonic()
    driver.set_environment(f"{FLAG}=dynamic")
    space.wait_phase(WAITER)
    notes.append(
        f"{drained - began:6.1f} s  until four partitions were drained after the flag was removed, "
        f"{time.monotonic() - drained:.1f} s until the pod that waited ran with the flag back"
    )
    space.clear()
    driver.wait_without_traces()


@pytest.mark.usefixtures("_held")
def test_an_npu_moves_to_a_resource_though_claims_wait_for_it(
    driver: Driver, space: Space, notes: list[str]
) -> None:
    """It moves when its last claim ends, and back when the flag no longer names it."""
    plugin, began = Plugin(driver), time.monotonic()
    plugin.turn_on("0", pool=NPUS - 1)
    release(driver, space)
    plugin.wait_allocatable(1)
    assert space.allocated(WAITER) == []
    moved = time.monotonic()
    plugin.turn_off()
    space.wait_phase(WAITER)
    notes.append(
        f"{moved - began:6.1f} s  until an NPU with four partitions was in the resource, "
        f"{time.monotonic() - moved:.1f} s until the pod that waited had a partition of it"
    )
    space.clear()
    driver.wait_without_traces()


def deployment() -> list[Object]:
    """Four replicas, each with a quarter of the first NPU."""
    template, deployed = yaml.safe_load_all((EXAMPLES / "deployment.yaml").read_text())
    template["spec"]["spec"]["devices"]["requests"] = [partition(QUARTER)]
    deployed["spec"]["replicas"] = len(HOLDERS)
    return [template, deployed]


def test_an_npu_that_comes_back_has_no_stray_partitions(
    driver: Driver, space: Space, notes: list[str]
) -> None:
    """Its pods are evicted while it is gone; their replacements run when it is back."""
    space.apply(*deployment())

    def running() -> list[str]:
        pods = space.cluster.objects("pods", namespace=space.name)
        return [each["metadata"]["uid"] for each in pods if is_running(each)]

    space.wait(lambda: len(running()) == len(HOLDERS), "four replicas with partitions")
    before, began = set(running()), time.monotonic()
    with driver.board() as board:
        board.set_gone(0)
        space.wait(lambda: not before & set(running()), "all replicas evicted")
        evicted = time.monotonic()
        board.restore(0)
    space.wait(lambda: len(running()) == len(HOLDERS), "four new replicas with partitions")
    notes.append(
        f"{evicted - began:6.1f} s  until the pods of an NPU that is gone were evicted, "
        f"{time.monotonic() - evicted:.1f} s until new ones ran after it was back"
    )
    assert len(vnpus(driver)) == len(HOLDERS)
    assert not [name for name in driver.devices() if "-vnpu-" in name]
    space.delete("deployment", "npu-deployment")
    space.clear()
    driver.wait_without_traces()
    driver.cluster.wait(lambda: vnpus(driver) == [], "no vNPU left")
