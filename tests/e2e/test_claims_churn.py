"""Many claims in a short time leave nothing."""

from __future__ import annotations

import time

import pytest

from dev.cluster.driver import NPUS, Driver
from tests.e2e.space import Space, claim, pod

pytestmark = pytest.mark.cluster


def wait_unused(driver: Driver) -> None:
    """Wait until neither the node nor the kubelet's metrics have a claim."""
    driver.wait_without_traces()
    driver.cluster.wait(lambda: driver.claims_in_use() == 0, "dra_resource_claims_in_use at 0")


def test_fifty_claims_leave_nothing(driver: Driver, space: Space, notes: list[str]) -> None:
    """Of each eight, half are deleted by force immediately: no file, record or claim in use stays.

    Each pod that is not deleted gets an NPU of its own.
    """
    began = time.monotonic()
    every = [f"user-{number}" for number in range(50)]
    for start in range(0, len(every), NPUS):
        names = every[start : start + NPUS]
        deleted, kept = names[::2], names[1::2]
        space.apply(*map(claim, names), *(pod(name, name) for name in names))
        space.begin_delete("pods", *deleted, grace=0)
        space.begin_delete("resourceclaims", *deleted)
        for name in kept:
            space.wait_phase(name)
        held = [device for name in kept for device in space.allocated(name)]
        assert len(set(held)) == len(held) == len(kept)
        space.clear()
    wait_unused(driver)
    notes.append(f"{time.monotonic() - began:6.1f} s  for 50 claims and their pods")


def test_five_pods_share_a_claim_again_and_again(driver: Driver, space: Space) -> None:
    """Three times five pods come for one claim and go: one claim in use, and then none."""
    space.apply(claim("npu"))
    names = [f"user-{number}" for number in range(5)]
    for _ in range(3):
        space.apply(*(pod(name, "npu") for name in names))
        for name in names:
            space.wait_phase(name)
        seen = {tuple(space.seen_npus(name)) for name in names}
        assert seen == {tuple(map(driver.bus, space.allocated("npu")))}
        assert driver.claims_in_use() == 1
        assert len(driver.traces()) == 2
        space.delete("pods", *names)
        wait_unused(driver)
