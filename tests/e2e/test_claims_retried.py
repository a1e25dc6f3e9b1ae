"""Claims that cannot be prepared or given back, and later can: calls that fail and then succeed."""

from __future__ import annotations

import pytest

from dev.cluster.driver import Driver, cdi_file, record
from tests.e2e.space import Space, claim, pod

pytestmark = pytest.mark.cluster

FAILED = "FailedPrepareDynamicResources"


def test_what_failed_succeeds_later(driver: Driver, space: Space) -> None:
    """Events say what is wrong; once that is over pods run, and what could not be deleted goes.

    All kinds of failure at once, for the driver goes on trying for 40 s before it says so: a CDI
    file or a record that cannot be written, an NPU that another claim holds, a CDI file that cannot
    be removed. A fault that passes meanwhile costs its pod a moment, and no event.
    """
    names = ("holder", "held", "without-file", "without-record", "passing", "leaving")
    space.apply(*map(claim, names))
    uids = {name: space.uid("resourceclaim", name) for name in names}
    space.apply(*(pod(name, name) for name in ("holder", "leaving")))
    space.apply(pod("held", "held", is_gated=True))
    for name in ("holder", "leaving"):
        space.wait_phase(name)
    (contested,) = space.allocated("holder")
    space.allocate("held", "held", npu=contested)

    lasting = (
        cdi_file(uids["without-file"]),
        record(uids["without-record"]),
        cdi_file(uids["leaving"]),
    )
    with driver.obstacle(*lasting):
        space.begin_delete("pod", "leaving")
        space.ungate("held")
        space.apply(*(pod(name, name) for name in ("without-file", "without-record")))
        with driver.obstacle(cdi_file(uids["passing"])):
            space.apply(pod("passing", "passing"))
            driver.wait_recorded(uids["passing"])
        space.wait_phase("passing")
        space.wait_event("held", FAILED, f"is held by claim {space.name}/holder")
        space.wait_event("without-file", FAILED, f"cannot write {lasting[0]}")
        space.wait_event("without-record", FAILED, f"cannot write {lasting[1]}")
        space.wait(lambda: driver.count("claim not unprepared", uids["leaving"]), "leaving stuck")
        assert space.get("pod", "leaving") is not None

    space.delete_pod("holder")
    space.try_again("held", "without-file", "without-record")
    for name in ("held", "without-file", "without-record", "passing"):
        space.wait_phase(name)
        assert space.seen_npus(name) == list(map(driver.bus, space.allocated(name)))
    assert not [
        event
        for event in driver.cluster.pod_events("passing", namespace=space.name)
        if "Failed" in event
    ]
    space.wait_gone("leaving")
