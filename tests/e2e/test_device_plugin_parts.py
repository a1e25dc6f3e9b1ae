"""Shares of NPUs, and vNPUs created manually, as devices of device plugin resources."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import NPUS, Driver
from tests.e2e.partitions import set_vnpu
from tests.e2e.resources import RESOURCE, Plugin
from tests.e2e.space import USES, Space, container, pod

pytestmark = pytest.mark.cluster

QUARTER = f"{RESOURCE}-5c.1cpu.8g"
SHARES = 2
CARD, VNPU = 1, 116


@pytest.fixture(scope="module")
def driver(driver: Driver) -> Iterator[Driver]:
    """The driver with two NPUs in a resource, each for two pods; afterwards all are in the pool."""
    driver.set_environment(
        *("NPU_DRA_DEVICE_PLUGIN=0-1", f"NPU_DRA_DEVICE_PLUGIN_SHARES={SHARES}"), devices=NPUS - 2
    )
    Plugin(driver).wait_allocatable(2 * SHARES)
    yield driver
    driver.set_environment("NPU_DRA_DEVICE_PLUGIN-", "NPU_DRA_DEVICE_PLUGIN_SHARES-")
    driver.cluster.wait(lambda: not driver.shared_chips(), "no chip shared")
    assert driver.pod_records() == []
    driver.cluster.wait(lambda: not driver.has_devices_file(), "no CDI file of the resource")


def user(name: str, resource: str) -> Object:
    """A pod that uses one device."""
    uses = container("main", command=USES) | {"resources": {"limits": {resource: "1"}}}
    return pod(name, containers=[uses])


def test_two_pods_share_an_npu(driver: Driver, space: Space) -> None:
    """Both use it at once, and the other NPU stays free."""
    space.apply(user("one", RESOURCE), user("two", RESOURCE))
    for name in ("one", "two"):
        space.wait_phase(name)
        assert space.davinci_nodes(name) == ["/dev/davinci0"]
        assert len(space.seen_npus(name)) == 1
    assert driver.shared_chips() == {0}


def test_a_pod_has_a_vnpu_that_was_cut_by_hand(driver: Driver, space: Space) -> None:
    """Its npu-smi shows the partition alone; its NPU is not there meanwhile."""
    plugin = Plugin(driver)
    set_vnpu(driver, CARD, "create-vnpu", "-f", "vir05_1c_8g", "-v", str(VNPU))
    plugin.wait_allocatable(1, of=QUARTER)
    plugin.wait_allocatable(SHARES)
    space.apply(user("small", QUARTER))
    space.wait_phase("small")
    assert space.davinci_nodes("small") == [f"/dev/davinci{VNPU}"]
    assert "vir05" in space.execute("small", "npu-smi", "info")
    space.delete_pod("small")
    set_vnpu(driver, CARD, "destroy-vnpu", "-v", str(VNPU))
    plugin.wait_allocatable(0, of=QUARTER)
