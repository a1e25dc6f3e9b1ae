"""What happens to claims as pods and their containers come and go."""

from __future__ import annotations

import pytest

from dev.cluster.driver import Driver
from tests.e2e.space import Space, bus_ids, claim, container, pod

pytestmark = pytest.mark.cluster


def test_init_container_and_container_share_the_npu(space: Space) -> None:
    """Both see the one NPU of the claim, one after the other."""
    first = container("first", "npu", command=["npu-smi", "info"])
    second = container("second", "npu")
    space.apply(claim("npu"), pod("user", "npu", init_containers=[first], containers=[second]))
    space.wait_phase("user")
    seen = space.seen_npus("user", container="second")
    assert len(seen) == 1
    assert bus_ids(space.log("user", "first")) == seen


def test_container_without_the_claim_sees_no_npu(space: Space) -> None:
    """A claim's NPU goes to the containers that name it, not to the whole pod."""
    containers = [container("with", "npu"), container("without")]
    space.apply(claim("npu"), pod("user", "npu", containers=containers))
    space.wait_phase("user")
    look = "ls /dev | grep -c davinci || true"
    assert space.execute("user", "sh", "-c", look, container="without") == "0\n"


def test_two_pods_share_a_claim(driver: Driver, space: Space) -> None:
    """Pods that name the same claim share its NPU; it is kept until the last has ended."""
    space.apply(claim("npu"), pod("one", "npu"), pod("two", "npu"))
    space.wait_phase("one")
    space.wait_phase("two")
    assert space.seen_npus("one") == space.seen_npus("two")
    held = driver.traces()
    space.delete_pod("one")
    assert driver.traces() == held
    space.delete_pod("two")
    driver.wait_without_traces()


def test_restarted_container_has_its_npu_again(space: Space) -> None:
    """A container that the kubelet starts anew gets the same NPU."""
    until_told = ["sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.1; done"]
    user = pod("user", "npu", containers=[container("main", "npu", command=until_told)])
    user["spec"]["restartPolicy"] = "Always"
    space.apply(claim("npu"), user)
    space.wait_phase("user")
    before = space.davinci_nodes("user")
    space.execute("user", "touch", "/tmp/end")

    def restarted() -> bool:
        (state,) = (space.get("pod", "user") or {})["status"]["containerStatuses"]
        return bool(state["restartCount"] == 1 and state["ready"])

    space.wait(restarted, "the container restarted")
    assert space.davinci_nodes("user") == before


def test_finished_pod_frees_its_npu(driver: Driver, space: Space) -> None:
    """A pod that ends by itself holds nothing, although it is still listed."""
    containers = [container("main", "npu", command=["npu-smi", "info"])]
    space.apply(claim("npu"), pod("job", "npu", containers=containers))
    space.wait_phase("job", "Succeeded")
    assert len(bus_ids(space.log("job", "main"))) == 1
    driver.wait_without_traces()


def test_deleted_pod_leaves_nothing(driver: Driver, space: Space) -> None:
    """While the pod runs there is one CDI file and one record, after its deletion none."""
    space.apply(claim("npu"), pod("user", "npu"))
    space.wait_phase("user")
    uid = space.uid("resourceclaim", "npu")
    assert driver.cdi_files() == [f"npu.huawei.com-npu_{uid}.json"]
    assert driver.records() == [f"{uid}.json"]
    space.delete_pod("user")
    driver.wait_without_traces()


def test_force_deleted_pod_leaves_nothing(driver: Driver, space: Space) -> None:
    """So it is for a pod that is taken off the API server before its containers have ended."""
    stubborn = container("main", "npu", command=["sleep", "600"])
    space.apply(claim("npu"), pod("user", "npu", containers=[stubborn]))
    space.wait_phase("user")
    assert len(driver.traces()) == 2
    space.delete_pod("user", grace=0)
    driver.wait_without_traces()


def test_removed_cdi_file_returns(driver: Driver, space: Space) -> None:
    """A CDI file that somebody deletes is written again: a restart of the container needs it."""
    space.apply(claim("npu"), pod("user", "npu"))
    space.wait_phase("user")
    uid = space.uid("resourceclaim", "npu")
    (name,) = driver.cdi_files()
    before = driver.cdi_spec(uid)
    driver.cluster.node.execute("rm", f"/etc/cdi/{name}")
    driver.cluster.wait(lambda: driver.cdi_files() == [name], "the CDI file is back")
    assert driver.cdi_spec(uid) == before


def test_container_is_told_of_no_other_npus(space: Space) -> None:
    """A vendor's container runtime below us is told to add no NPU; nodes are open to any user."""
    user = pod("user", "npu")
    user["spec"]["securityContext"] = {"runAsUser": 1000, "runAsGroup": 1000}
    space.apply(claim("npu"), user)
    space.wait_phase("user")
    assert space.execute("user", "printenv", "ASCEND_VISIBLE_DEVICES") == "void\n"
    modes = space.execute("user", "sh", "-c", "stat -c %a /dev/davinci*").split()
    assert modes == ["666", "666"]
    assert len(space.seen_npus("user")) == 1
