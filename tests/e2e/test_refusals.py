"""The Events of a pod whose claim cannot be prepared."""

from __future__ import annotations

import pytest

from dev.cluster.driver import BOARD, Driver
from tests.e2e.space import Space, claim, pod

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]


def test_event_names_what_the_host_lacks_and_the_pod_starts_when_it_is_there(
    driver: Driver, space: Space
) -> None:
    """As while the Ascend driver is updated; the kubelet asks again by itself."""
    place = driver.node.root / BOARD.relative_to("/") / "usr/local/Ascend/driver"
    away = place.rename(place.with_name("away"))
    try:
        space.apply(claim("npu"), pod("user", "npu"))
        missing = "/usr/local/Ascend/driver/lib64/ is missing on the node"
        space.wait_event("user", "FailedPrepareDynamicResources", missing)
        assert driver.traces() == []
    finally:
        away.rename(place)
    space.wait_phase("user")
    assert len(space.seen_npus("user")) == 1
