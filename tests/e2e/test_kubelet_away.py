"""What happens to pods while no kubelet runs is made good when it runs again."""

from __future__ import annotations

from functools import partial

import pytest

from dev.cluster.driver import Driver, cdi_file
from tests.e2e.space import Space, claim, pod

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

RUNNING = ("stays", "ended", "forced")
UNDECIDED = ("resumed", "given-up")


def test_kubelet_makes_good_what_it_missed(driver: Driver, space: Space) -> None:
    """New and interrupted pods run, deleted ones give their NPUs back and are not prepared again.

    It dies with pods in every state: running, prepared and without a container yet, in the middle
    of NodePrepareResources. Then some are deleted, with and without grace, and one is created.
    """
    cluster, node = driver.cluster, driver.cluster.node
    names = (*RUNNING, *UNDECIDED, "imageless", "new")
    space.apply(*map(claim, names))
    uids = {name: space.uid("resourceclaim", name) for name in names}
    space.apply(pod("imageless", "imageless", image="no-such-image"))
    with driver.obstacle(*(cdi_file(uids[name]) for name in UNDECIDED)):
        for name in (*RUNNING, *UNDECIDED):
            space.apply(pod(name, name))
            # The scheduler of 1.34.3 can allocate an NPU twice (docs/reliability.md).
            space.wait(partial(space.allocated, name), f"{name} scheduled")
        before = {name: space.wait_phase(name) for name in RUNNING}
        driver.wait_recorded(*(uids[name] for name in (*UNDECIDED, "imageless")))
        space.wait_event("imageless", "Failed", "no-such-image")
        registrations = driver.registrations()
        node.kill_kubelet()

    try:
        space.apply(pod("new", "new"))
        space.begin_delete("pod", "ended")
        space.delete("pods", "forced", "given-up", grace=0)
        cluster.kubectl(
            *("set", "image", "pod/imageless", "main=ubuntu", "--namespace", space.name)
        )
        space.wait(lambda: (space.get("pod", "new") or {})["spec"].get("nodeName"), "new scheduled")
        asked = {name: driver.prepares(uids[name]) for name in names}
    finally:
        node.start_kubelet()

    driver.wait_registered(registrations + 1)
    space.try_again("new", "resumed", "imageless")
    for name in ("new", "resumed", "imageless", "stays"):
        after = space.wait_phase(name)
        see = cluster.wait_ok(partial(space.seen_npus, name), f"exec in {name}")
        assert see == list(map(driver.bus, space.allocated(name)))
        if name == "stays":
            containers = [each["status"]["containerStatuses"] for each in (before[name], after)]
            assert containers[0][0]["containerID"] == containers[1][0]["containerID"]
    space.wait_gone("ended")
    kept = sorted(f"{uids[name]}.json" for name in ("stays", "resumed", "imageless", "new"))
    # The kubelet looks for claims of pods that it does not know once a minute.
    cluster.wait(lambda: driver.records() == kept, "four claims left")
    for name in ("stays", "ended", "forced", "given-up"):
        assert driver.prepares(uids[name]) == asked[name], name
    driver.wait_published()
