"""An NPU asked for in the way of device plugins."""

from __future__ import annotations

import pytest

from dev.cluster.driver import Driver
from tests.e2e.space import Space

pytestmark = [pytest.mark.cluster, pytest.mark.every_version, pytest.mark.since("1.36")]


def test_npu_as_extended_resource(driver: Driver, space: Space) -> None:
    """A pod that asks for `huawei.com/npu: 1`, without a claim, gets one NPU as any other."""
    space.apply_example("extended-resource")
    user = space.wait_phase("npu-test-pod")
    made = user["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    (device,) = space.allocated(made)
    assert space.davinci_nodes("npu-test-pod") == [device.replace("npu-", "/dev/davinci")]
    assert len(space.seen_npus("npu-test-pod")) == 1
    space.delete_pod("npu-test-pod", grace=1)
    driver.wait_without_traces()
