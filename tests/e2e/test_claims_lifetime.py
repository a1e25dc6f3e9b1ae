"""Claims that outlive their pods, and pods that outlive their claims."""

from __future__ import annotations

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import Driver
from tests.e2e.space import Space, claim, claim_template, container, pod, request

pytestmark = pytest.mark.cluster

OWN = 'device.attributes["npu.huawei.com"]'
TEMPLATE = claim_template("template", claim("any"))


def from_template(user: Object) -> Object:
    """The pod with its first claim made from the template."""
    first = user["spec"]["resourceClaims"][0]
    del first["resourceClaimName"]
    first["resourceClaimTemplateName"] = "template"
    return user


def made_claim(space: Space) -> str:
    """Name of the claim that was made for the pod `user`."""
    (made, *_) = (space.get("pod", "user") or {})["status"]["resourceClaimStatuses"]
    return str(made["resourceClaimName"])


def wait_deallocated(space: Space, name: str) -> None:
    """Wait until a claim that still exists has neither NPUs nor pods."""

    def look() -> bool:
        status = (space.get("resourceclaim", name) or {})["status"]
        return not status.get("allocation") and not status.get("reservedFor")

    space.wait(look, f"claim {name} deallocated")


def test_claim_of_two_pods_is_prepared_once(driver: Driver, space: Space) -> None:
    """A second pod costs no call; the end of the last one unprepares the claim."""
    space.apply(claim("npu"), pod("one", "npu"))
    space.wait_phase("one")
    uid = space.uid("resourceclaim", "npu")
    space.apply(pod("two", "npu"))
    space.wait_phase("two")
    assert space.seen_npus("one") == space.seen_npus("two")
    assert driver.prepares(uid) == 1

    space.delete_pod("one")
    assert driver.count("claim unprepared", uid) == 0
    space.delete_pod("two")
    driver.wait_without_traces()
    assert driver.count("claim unprepared", uid) == 1


@pytest.mark.every_version
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


def test_claim_recreated_while_its_pod_waits(driver: Driver, space: Space) -> None:
    """A claim that is not allocated is not prepared; its successor of the same name is."""
    space.apply(claim("npu"), pod("user", "npu", node=driver.cluster.node.name))
    space.wait_event("user", "FailedPrepareDynamicResources")
    old = space.uid("resourceclaim", "npu")
    space.delete("resourceclaim", "npu")

    space.apply(claim("npu"))
    space.allocate("npu", "user", npu="npu-5")
    space.try_again("user")
    space.wait_phase("user")
    assert space.seen_npus("user") == [driver.bus("npu-5")]
    assert driver.prepares(old) == 0
    assert driver.prepares(space.uid("resourceclaim", "npu")) == 1


def test_generated_claim_goes_with_its_pod(driver: Driver, space: Space) -> None:
    """A claim made from a template is deleted with the pod; one of its own stays, unreserved."""
    space.apply(TEMPLATE, claim("kept"), from_template(pod("user", "made", "kept")))
    space.wait_phase("user")
    made = made_claim(space)
    assert space.seen_npus("user") == sorted(
        driver.bus(device) for name in ("kept", made) for device in space.allocated(name)
    )

    space.delete_pod("user")
    space.wait(lambda: space.get("resourceclaim", made) is None, f"claim {made} gone")
    wait_deallocated(space, "kept")
    driver.wait_without_traces()


def test_crashing_container_keeps_its_npu(driver: Driver, space: Space) -> None:
    """A container that crashes repeatedly has the same NPU each time, from one prepare call."""
    crash = ["sh", "-c", "ls -d /dev/davinci[0-9]*; exit 1"]
    user = pod("user", "made", containers=[container("main", "made", command=crash)])
    user["spec"]["restartPolicy"] = "Always"
    space.apply(TEMPLATE, from_template(user))

    def crashed_twice() -> bool:
        states = (space.get("pod", "user") or {})["status"].get("containerStatuses", [])
        return bool(states and states[0]["restartCount"] >= 2)

    space.wait(crashed_twice, "two restarts")
    made = made_claim(space)
    (device,) = space.allocated(made)
    said = device.replace("npu-", "/dev/davinci") + "\n"
    space.wait(lambda: space.log("user", "main") == said, "the container's NPU in its log")
    assert driver.prepares(space.uid("resourceclaim", made)) == 1
