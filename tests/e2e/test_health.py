"""The health of NPUs, as pods' owners see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dev.cluster import audit
from dev.cluster.driver import ACCOUNT, Driver
from tests.e2e.space import Space, claim, pod, request
from trio_npu_dra.lab.simulator import Severity

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

FAULT = 0x81B38002
"""The work on the NPU must be restarted, says the vendor's table; however often it comes."""


def wait_health(space: Space, health: str) -> str:
    """Wait until the pod's status says so of its NPU; returns the message beside it."""

    def look() -> tuple[str] | None:
        (container,) = (space.get("pod", "user") or {})["status"]["containerStatuses"]
        for claimed in container.get("allocatedResourcesStatus", []):
            for resource in claimed["resources"]:
                if resource["health"] == health:
                    return (resource.get("message", ""),)
        return None

    return space.wait(look, f"an NPU {health}")[0]


@contextmanager
def fault(driver: Driver, number: int) -> Iterator[None]:
    """The chip of that number reports a fault."""
    with driver.board() as board:
        board.add_fault(number, FAULT, Severity.CRITICAL)
        try:
            yield
        finally:
            board.clear_fault(number, FAULT)


def start_pod(space: Space) -> int:
    """A running pod whose NPU is Healthy; returns the NPU's number."""
    space.apply(claim("npu"), pod("user", "npu"))
    space.wait_phase("user")
    wait_health(space, "Healthy")
    (device,) = space.allocated("npu")
    return int(device.removeprefix("npu-"))


def test_fault_of_an_npu_shows_in_the_pods_status(driver: Driver, space: Space) -> None:
    """While a chip reports a fault it is Unhealthy in the status of the pod that uses it."""
    with fault(driver, start_pod(space)):
        wait_health(space, "Unhealthy")
    wait_health(space, "Healthy")


@pytest.mark.since("1.36")
def test_pods_status_names_the_fault(driver: Driver, space: Space) -> None:
    """Beside the health stands the fault's code, in Kubernetes that has a place for it."""
    with fault(driver, start_pod(space)):
        assert f"{FAULT:08X}" in wait_health(space, "Unhealthy")


def test_fields_that_the_server_drops_are_not_written_again(driver: Driver, space: Space) -> None:
    """A fault comes and goes: the pool is written once for each at most, and is as it was."""
    before = driver.devices()
    mark = driver.cluster.audit_mark()
    with fault(driver, 0):
        # The life of a pod on another NPU is time in which a publisher would repeat itself.
        assert_a_pod_lives(driver, space, "during")
    driver.cluster.wait(lambda: driver.devices() == before, "the pool as it was")
    assert_a_pod_lives(driver, space, "after")
    written = audit.writes(driver.cluster.audit(mark), user=ACCOUNT, resource="resourceslices")
    assert len(written) <= 2, written


def assert_a_pod_lives(driver: Driver, space: Space, name: str) -> None:
    """A pod gets an NPU without the fault, and its end leaves nothing."""
    healthy = 'device.attributes["npu.huawei.com"].physicalId != 0'
    space.apply(claim(name, request(cel=healthy)), pod(name, name))
    space.wait_phase(name)
    assert len(space.seen_npus(name)) == 1
    space.delete_pod(name)
    driver.wait_without_traces()
