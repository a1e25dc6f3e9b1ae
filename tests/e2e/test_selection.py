"""Which NPUs a claim gets."""

from __future__ import annotations

import pytest

from dev.cluster.driver import Driver
from tests.e2e.space import Space, claim, container, pod, request

pytestmark = pytest.mark.cluster

OWN = 'device.attributes["npu.huawei.com"]'
MEMORY = 'device.capacity["npu.huawei.com"].memCapacity'
ALL = {f"npu-{number}" for number in range(8)}


def assert_waits(space: Space, name: str) -> None:
    """The scheduler says that no node has what the pod wants."""
    space.wait_event(name, "FailedScheduling", "cannot allocate all claims")
    found = space.get("pod", name)
    assert found is not None
    assert found["status"]["phase"] == "Pending"


@pytest.mark.every_version
@pytest.mark.parametrize(
    ("cel", "fitting"),
    [
        (f'{OWN}.chipName == "910B4"', ALL),
        (f"{OWN}.numaNode == 6", {"npu-0", "npu-2"}),
        ('device.attributes["resource.kubernetes.io"].numaNode == 4', {"npu-4", "npu-6"}),
        (f"{OWN}.physicalId == 5", {"npu-5"}),
        (f'{MEMORY}.compareTo(quantity("32Gi")) >= 0', ALL),
        (f'{OWN}.driverVersion.compareTo(semver("24.1.0-rc1")) > 0', ALL),
    ],
    ids=["chipName", "numaNode", "standard-numaNode", "physicalId", "memCapacity", "driverVersion"],
)
def test_selector_that_fits(space: Space, cel: str, fitting: set[str]) -> None:
    """A CEL expression on a published fact chooses an NPU that has it."""
    space.apply(claim("chosen", request(cel=cel)), pod("user", "chosen"))
    space.wait_phase("user")
    assert set(space.allocated("chosen")) <= fitting
    assert len(space.seen_npus("user")) == 1


@pytest.mark.parametrize(
    "cel",
    [
        f'{OWN}.chipName == "910B2"',
        f"{OWN}.numaNode == 5",
        f'{MEMORY}.compareTo(quantity("33Gi")) >= 0',
    ],
    ids=["chipName", "numaNode", "memCapacity"],
)
def test_selector_that_does_not_fit(space: Space, cel: str) -> None:
    """A pod that asks for what no NPU is waits."""
    space.apply(claim("chosen", request(cel=cel)), pod("user", "chosen"))
    assert_waits(space, "user")
    assert space.allocated("chosen") == []


def test_ninth_pod_waits_for_one_of_eight_to_end(space: Space) -> None:
    """Eight pods take the eight NPUs, each its own; a ninth runs once one of them has ended."""
    names = [f"user-{number}" for number in range(8)]
    space.apply(*(claim(name) for name in names), *(pod(name, name) for name in names))
    for name in names:
        space.wait_phase(name)
    held = [device for name in names for device in space.allocated(name)]
    assert sorted(held) == sorted(ALL)
    buses = [bus for name in names for bus in space.seen_npus(name)]
    assert len(set(buses)) == len(buses) == 8

    space.apply(claim("ninth"), pod("ninth", "ninth"))
    assert_waits(space, "ninth")
    freed = space.allocated("user-3")
    space.delete_pod("user-3")
    space.wait_phase("ninth")
    assert space.allocated("ninth") == freed


def test_two_npus_in_one_claim(space: Space) -> None:
    """A count of two gives a container both NPUs."""
    space.apply(claim("pair", request(count=2)), pod("user", "pair"))
    space.wait_phase("user")
    names = space.allocated("pair")
    assert len(names) == 2
    assert len(space.seen_npus("user")) == 2
    assert space.davinci_nodes("user") == [name.replace("npu-", "/dev/davinci") for name in names]


@pytest.mark.every_version
def test_two_claims_in_one_pod(space: Space) -> None:
    """Each container of a pod sees the NPU of the claim that it names, and no other."""
    containers = [container("left", "one"), container("right", "two")]
    space.apply(claim("one"), claim("two"), pod("user", "one", "two", containers=containers))
    space.wait_phase("user")
    (one,), (two,) = space.allocated("one"), space.allocated("two")
    assert one != two
    for name, device in (("left", one), ("right", two)):
        nodes = space.davinci_nodes("user", container=name)
        assert nodes == [device.replace("npu-", "/dev/davinci")]
        assert len(space.seen_npus("user", container=name)) == 1


def test_two_claims_in_one_container(space: Space) -> None:
    """A container that names two claims sees both NPUs."""
    space.apply(claim("one"), claim("two"), pod("user", "one", "two"))
    space.wait_phase("user")
    assert len(space.seen_npus("user")) == 2


def test_requests_of_one_claim_go_to_their_containers(space: Space) -> None:
    """Of a claim with two requests a container gets the request that it names."""
    containers = [container("left", "both/a"), container("right", "both/b")]
    requests = [
        request("a", cel=f"{OWN}.physicalId == 1"),
        request("b", cel=f"{OWN}.physicalId == 6"),
    ]
    space.apply(claim("both", *requests), pod("user", "both", containers=containers))
    space.wait_phase("user")
    assert space.davinci_nodes("user", container="left") == ["/dev/davinci1"]
    assert space.davinci_nodes("user", container="right") == ["/dev/davinci6"]


@pytest.mark.every_version
def test_four_npus_of_one_ring(driver: Driver, space: Space) -> None:
    """With matchAttribute on topologyGroup a pod gets four NPUs that reach each other."""
    together = {"requests": ["npu"], "matchAttribute": "npu.huawei.com/topologyGroup"}
    space.apply(claim("ring", request(count=4), constraints=[together]), pod("user", "ring"))
    space.wait_phase("user")
    devices = driver.devices()
    groups = {
        devices[name]["attributes"]["topologyGroup"]["string"] for name in space.allocated("ring")
    }
    assert groups == {"ring-0"}
    assert len(space.seen_npus("user")) == 4


def test_npus_of_one_numa_node(driver: Driver, space: Space) -> None:
    """With matchAttribute on numaNode a pod gets the two NPUs of a NUMA node, and never three."""
    together = {"requests": ["npu"], "matchAttribute": "resource.kubernetes.io/numaNode"}
    for name, count in (("two", 2), ("three", 3)):
        wanted = claim(name, request(count=count), constraints=[together])
        space.apply(wanted, pod(name, name))
    space.wait_phase("two")
    devices = driver.devices()
    nodes = {devices[name]["attributes"]["numaNode"]["int"] for name in space.allocated("two")}
    assert len(nodes) == 1
    assert_waits(space, "three")
