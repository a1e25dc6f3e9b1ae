"""The choice of NPUs for a claim."""

from __future__ import annotations

import pytest

from dev.cluster.driver import Driver
from tests.e2e.space import Space, claim, pod, request

pytestmark = pytest.mark.cluster

OWN = 'device.attributes["npu.huawei.com"]'
MEMORY = 'device.capacity["npu.huawei.com"].memCapacity'
ALL = {f"npu-{number}" for number in range(8)}


FITTING = {
    "chip-name": (f'{OWN}.chipName == "910B4"', ALL),
    "numa-node": (f"{OWN}.numaNode == 6", {"npu-0", "npu-2"}),
    "standard-numa-node": (
        'device.attributes["resource.kubernetes.io"].numaNode == 4',
        {"npu-4", "npu-6"},
    ),
    "physical-id": (f"{OWN}.physicalId == 5", {"npu-5"}),
    "memory": (f'{MEMORY}.compareTo(quantity("32Gi")) >= 0', ALL),
    "driver-version": (f'{OWN}.driverVersion.compareTo(semver("24.1.0-rc1")) > 0', ALL),
}
"""CEL expressions, and the NPUs that they choose among."""
NOT_FITTING = {
    "chip-name": f'{OWN}.chipName == "910B2"',
    "numa-node": f"{OWN}.numaNode == 5",
    "memory": f'{MEMORY}.compareTo(quantity("33Gi")) >= 0',
}
"""CEL expressions that choose no NPU."""


@pytest.mark.every_version
def test_selectors_that_fit(space: Space) -> None:
    """A CEL expression on a published fact chooses an NPU that has it; a container has them all."""
    claims = [claim(name, request(cel=cel)) for name, (cel, _) in FITTING.items()]
    space.apply(*claims, pod("user", *FITTING))
    space.wait_phase("user")
    for name, (_, fitting) in FITTING.items():
        (device,) = space.allocated(name)
        assert device in fitting, name
    assert len(space.seen_npus("user")) == len(FITTING)


def test_selectors_that_do_not_fit(space: Space) -> None:
    """A pod whose claim no NPU fits waits."""
    for name, cel in NOT_FITTING.items():
        space.apply(claim(name, request(cel=cel)), pod(name, name))
    for name in NOT_FITTING:
        space.assert_waits(name)


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
    space.assert_waits("ninth")
    freed = space.allocated("user-3")
    space.delete_pod("user-3")
    space.wait_phase("ninth")
    assert space.allocated("ninth") == freed


def test_npus_of_one_numa_node(driver: Driver, space: Space) -> None:
    """With matchAttribute on numaNode a claim gets the two NPUs of a NUMA node, and never three.

    A count of two gives a container both NPUs.
    """
    together = {"requests": ["npu"], "matchAttribute": "resource.kubernetes.io/numaNode"}
    for name, count in (("two", 2), ("three", 3)):
        wanted = claim(name, request(count=count), constraints=[together])
        space.apply(wanted, pod(name, name))
    space.wait_phase("two")
    devices, pair = driver.devices(), space.allocated("two")
    assert len(pair) == len(space.seen_npus("two")) == 2
    assert space.davinci_nodes("two") == [name.replace("npu-", "/dev/davinci") for name in pair]
    assert len({devices[name]["attributes"]["numaNode"]["int"] for name in pair}) == 1
    space.assert_waits("three")
