"""The health of NPUs, as pods' owners see it."""

from __future__ import annotations

import pytest

from tests.e2e.driver import Driver
from tests.e2e.space import Space, claim, pod
from trio_npu_dra.simulator import Severity

pytestmark = pytest.mark.cluster

FAULT = 0x80E01801
"""HBM multi-bit error of the vendor's fault table: the NPU must be isolated."""


def wait_health(space: Space, health: str) -> str:
    """Wait until the pod's status says so of its NPU; returns the message beside it."""

    def look() -> tuple[str] | None:
        (container,) = (space.get("pod", "user") or {})["status"]["containerStatuses"]
        for claimed in container.get("allocatedResourcesStatus", []):
            for resource in claimed["resources"]:
                if resource["health"] == health:
                    return (resource.get("message", ""),)
        return None

    return space.wait(look, f"an NPU {health}", timeout=90)[0]


def test_fault_of_an_npu_shows_in_the_pods_status(driver: Driver, space: Space) -> None:
    """While a chip reports a fault it is Unhealthy in the status of the pod that uses it."""
    space.apply(claim("npu"), pod("user", "npu"))
    space.wait_phase("user")
    wait_health(space, "Healthy")
    (device,) = space.allocated("npu")
    number = int(device.removeprefix("npu-"))
    with driver.board() as board:
        board.add_fault(number, FAULT, Severity.CRITICAL)
        try:
            message = wait_health(space, "Unhealthy")
        finally:
            board.restore(number)
    assert "80E01801" in message.upper()
    wait_health(space, "Healthy")
