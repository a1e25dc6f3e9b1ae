"""DeviceTaintRules take NPUs out of service: what docs/guides/maintain.md says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster.driver import NPUS, Driver
from tests.e2e.faults import number
from tests.e2e.space import EXAMPLES, Space, claim, pod, request

pytestmark = [pytest.mark.cluster, pytest.mark.every_version, pytest.mark.since("1.37")]

EXAMPLE = (EXAMPLES / "drain-npu.yaml").read_text(encoding="utf-8")
KIND = "devicetaintrule"


@pytest.fixture(autouse=True)
def rules_end(driver: Driver) -> Iterator[None]:
    """No rule outlives its test, even one that fails."""
    yield
    rules = driver.cluster.objects("devicetaintrules", namespace=None)
    driver.cluster.remove(KIND, *(str(rule["metadata"]["name"]) for rule in rules))


def test_drained_npu_loses_its_pod_and_is_given_out_when_the_rule_is_gone(
    driver: Driver, space: Space
) -> None:
    """Just that pod, whose claim is unprepared; other NPUs are given out, and slices stay."""
    space.start("leaves")
    stays = space.start("stays")
    (device,) = space.allocated("leaves")
    slices = driver.versions()
    text = EXAMPLE.replace("worker-1", driver.node.name).replace("npu-3", device)

    driver.cluster.kubectl("apply", "--filename", "-", stdin=text)
    space.wait_gone("leaves")
    space.wait(lambda: len(driver.traces()) == 2, "only the other claim prepared")
    space.start("others", request(count=NPUS - 2))
    assert device not in space.allocated("others")
    same = f'device.attributes["npu.huawei.com"].physicalId == {number(device)}'
    space.apply(claim("waits", request(cel=same)), pod("waits", "waits"))
    space.assert_waits("waits")
    space.assert_runs_on(stays, npus=1)
    assert driver.versions() == slices

    driver.cluster.kubectl("delete", "--filename", "-", stdin=text)
    space.wait_phase("waits")
    assert space.allocated("waits") == [device]
