"""The kubelet without the driver: what waits for its return, and what does not wait."""

from __future__ import annotations

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import Driver
from tests.e2e.space import Space, claim, container, pod

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

TELLS_ITS_END = ("sh", "-c", "trap 'echo ended; exit 0' TERM; sleep 600 & wait")


def delete(space: Space, name: str) -> None:
    """Have a pod deleted, and wait until its container has ended."""
    space.begin_delete("pod", name)
    space.wait(lambda: "ended" in space.log(name, "main"), f"the container of {name} ended")


def talkative(name: str) -> Object:
    """A pod whose container says when it ends."""
    return pod(name, name, containers=[container("main", name, command=TELLS_ITS_END)])


def test_driver_away_for_long(driver: Driver, space: Space) -> None:
    """After 30 s there are no slices and nothing is scheduled; with the driver all goes on.

    A pod that was scheduled before waits for the driver, one that was deleted does not go.
    """
    names = ("leaving", "early", "late")
    space.apply(*map(claim, names), talkative("leaving"))
    space.wait_phase("leaving")
    old = driver.versions()
    with driver.away():
        space.apply(pod("early", "early"))
        delete(space, "leaving")
        space.wait_event("early", "FailedPrepareDynamicResources", "npu.huawei.com")
        driver.cluster.wait(lambda: driver.slices() == [], "no slices")
        space.apply(pod("late", "late"))
        space.assert_waits("late")
        assert "deletionTimestamp" in (space.get("pod", "leaving") or {})["metadata"]

    assert old.keys().isdisjoint(driver.versions())
    # The slices can be back a moment before the kubelet has registered the driver, so that the
    # late pod may have failed to prepare, too.
    space.try_again("early", "late")
    for name in ("early", "late"):
        space.wait_phase(name)
        assert space.seen_npus(name) == list(map(driver.bus, space.allocated(name)))
    space.wait_gone("leaving")
