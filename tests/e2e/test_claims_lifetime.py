"""A claim that outlives its pod."""

from __future__ import annotations

import pytest

from dev.cluster.driver import Driver
from tests.e2e.space import Space, claim, pod, request

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

OWN = 'device.attributes["npu.huawei.com"]'


def wait_deallocated(space: Space, name: str) -> None:
    """Wait until a claim that still exists has neither NPUs nor pods."""

    def look() -> bool:
        status = (space.get("resourceclaim", name) or {})["status"]
        return not status.get("allocation") and not status.get("reservedFor")

    space.wait(look, f"claim {name} deallocated")


def test_claim_gets_another_npu_with_its_next_pod(driver: Driver, space: Space) -> None:
    """A claim without pods has no NPU; allocated again, it is prepared with its new NPU."""
    space.apply(claim("npu"), pod("one", "npu"))
    space.wait_phase("one")
    uid, (first,) = space.uid("resourceclaim", "npu"), space.allocated("npu")
    space.delete_pod("one")
    wait_deallocated(space, "npu")

    same = request(cel=f"{OWN}.physicalId == {first.removeprefix('npu-')}")
    space.start("other", same)
    space.apply(pod("two", "npu"))
    space.wait_phase("two")
    (second,) = space.allocated("npu")
    assert space.uid("resourceclaim", "npu") == uid
    assert second != first
    assert space.seen_npus("two") == [driver.bus(second)]
    assert space.seen_npus("other") == [driver.bus(first)]
