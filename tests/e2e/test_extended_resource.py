"""An NPU asked for in the way of device plugins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from dev.cluster.deploy import ROOT
from dev.cluster.driver import Driver
from tests.e2e.space import Space

pytestmark = [pytest.mark.cluster, pytest.mark.every_version, pytest.mark.since("1.36")]

EXAMPLE = (ROOT / "k8s/examples/extended-resource.yaml").read_text()


@pytest.fixture
def counted(space: Space) -> Iterator[Space]:
    """A namespace for the example of an extended resource; its DeviceClass goes afterwards."""
    yield space
    for about in yaml.safe_load_all(EXAMPLE):
        if about["kind"] == "DeviceClass":
            space.cluster.remove("deviceclass", about["metadata"]["name"])


def test_npu_as_extended_resource(driver: Driver, counted: Space) -> None:
    """A pod that asks for `huawei.com/npu: 1`, without a claim, gets one NPU as any other."""
    counted.apply_text(EXAMPLE)
    user = counted.wait_phase("npu-test-pod")
    made = user["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    (device,) = counted.allocated(made)
    assert counted.davinci_nodes("npu-test-pod") == [device.replace("npu-", "/dev/davinci")]
    assert len(counted.seen_npus("npu-test-pod")) == 1
    counted.delete_pod("npu-test-pod", grace=1)
    driver.wait_without_traces()
