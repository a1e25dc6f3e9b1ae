"""NPUs that are cut while pods come and go: `--partitioning=dynamic` on a server of 910B4."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import NPUS, Driver
from tests.e2e.partitions import (
    HALF,
    QUARTER,
    cut_for_claims,
    partition,
    vnpus,
    whole,
)
from tests.e2e.space import Space, claim, pod

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

NAMES = re.compile(r"^\| \d+ +(910B4\S*) ", re.MULTILINE)


@pytest.fixture(scope="module")
def counters(driver: Driver) -> Iterator[bool]:
    """NPUs are cut for claims; whether the API server keeps counters."""
    with cut_for_claims(driver) as kept:
        yield kept


def start(space: Space, name: str, made: Object) -> list[str]:
    """A pod with that request runs; the devices that it has."""
    space.start(name, made)
    return space.allocated(name)


def seen(space: Space, name: str) -> list[str]:
    """The names of the NPUs that npu-smi shows in a pod."""
    return NAMES.findall(space.execute(name, "npu-smi", "info"))


def test_where_counters_are_dropped_there_are_whole_npus_only(
    driver: Driver, counters: bool, space: Space
) -> None:
    """The log says so; on a server that keeps counters each chip has its own."""
    names = set(driver.devices())
    assert names >= {f"npu-{number}" for number in range(NPUS)}
    sets = [
        each["name"] for item in driver.slices() for each in item["spec"].get("sharedCounters", [])
    ]
    said = "no partition of an NPU is published, whole NPUs only" in driver.log()
    if counters:
        assert sets == [f"npu-{number}" for number in range(NPUS)]
        assert not said
    else:
        assert (len(names), sets, said) == (NPUS, [], True)
        assert start(space, "user", whole()) == ["npu-0"]
        space.delete_pod("user")
        driver.wait_without_traces()


@pytest.mark.since("1.36")
def test_three_pods_have_a_partition_of_one_npu_each(
    driver: Driver, counters: bool, space: Space
) -> None:
    """Each sees its own; what does not fit waits; the whole NPU waits until all of it is free."""
    assert counters
    for name, template in (("one", QUARTER), ("two", QUARTER), ("three", HALF)):
        (device,) = start(space, name, partition(template))
        assert device.startswith(f"npu-0-{template.replace('_', '-')}-")
        assert seen(space, name) == [f"910B4{template}"]
        (node,) = space.davinci_nodes(name)
        assert int(node.removeprefix("/dev/davinci")) in vnpus(driver)
    assert len(set(vnpus(driver))) == 3

    space.apply(claim("four", partition(QUARTER)), pod("four", "four"))
    space.assert_waits("four")
    space.delete_pod("one")
    space.wait_phase("four")

    space.apply(claim("whole", whole()), pod("whole", "whole"))
    space.assert_waits("whole")
    for name in ("two", "three", "four"):
        space.delete_pod(name)
    space.wait_phase("whole")
    assert space.allocated("whole") == ["npu-0"]
    assert seen(space, "whole") == ["910B4"]
    space.delete_pod("whole")
    driver.wait_without_traces()
    assert vnpus(driver) == []


@pytest.mark.since("1.36")
def test_the_example_gives_a_quarter(driver: Driver, counters: bool, space: Space) -> None:
    """By the class of its size, without an expression; npu-smi shows it alone."""
    assert counters
    space.apply_example("vnpu-classes")
    space.apply_example("partition")
    space.wait_phase("quarter")
    assert seen(space, "quarter") == [f"910B4{QUARTER}"]
    (node,) = space.davinci_nodes("quarter")
    assert [node.removeprefix("/dev/davinci")] == list(map(str, vnpus(driver)))
    space.delete_pod("quarter")
    driver.wait_without_traces()
    assert vnpus(driver) == []
