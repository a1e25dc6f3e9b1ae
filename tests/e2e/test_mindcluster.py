"""The facts that Volcano reads of a node, and its choice of NPUs, with the overlay's rights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from dev.cluster.api import ApiServer, Object
from dev.cluster.deploy import ROOT
from dev.cluster.driver import NPUS, Driver
from dev.cluster.processes import ClusterError
from tests.e2e import test_security
from tests.e2e.resources import FLAG, RESOURCE, Plugin, asking
from tests.e2e.space import Space, pod
from trio_npu_dra.agent.mindcluster.device_info import check_code
from trio_npu_dra.agent.mindcluster.pod_configuration import CONFIGURATION

pytestmark = pytest.mark.cluster

COMPAT = "NPU_DRA_MINDCLUSTER_COMPAT"
MANIFESTS = [
    *(ROOT / f"k8s/node-labels/{name}.yaml" for name in ("rbac", "own-labels")),
    *(ROOT / f"k8s/overlays/mindcluster/{name}.yaml" for name in ("rbac", "own-node")),
]
NOT_OURS: list[tuple[Object, str]] = [
    ({"metadata": {"labels": {"team": "mine"}}}, "may not write this label"),
    ({"metadata": {"labels": {"kubernetes.io/os": None}}}, "may not write this label"),
    ({"metadata": {"annotations": {"team": "mine"}}}, "may not write this annotation"),
    ({"spec": {"unschedulable": True}}, "may only write labels and annotations"),
]


@pytest.fixture(scope="module")
def compat(driver: Driver) -> Iterator[Driver]:
    """The driver with the overlay's rights and flags, and without them at the end."""
    for path in MANIFESTS:
        driver.cluster.kubectl("apply", "--filename", path)
    driver.set_environment(f"{FLAG}=all", f"{COMPAT}=true", devices=0)
    yield driver
    driver.set_environment(f"{FLAG}-", devices=NPUS)
    driver.cluster.wait(lambda: "accelerator" not in labels(driver), "the labels gone")
    driver.set_environment(f"{COMPAT}-", devices=NPUS)
    for path in MANIFESTS:
        driver.cluster.kubectl("delete", "--filename", path)


def node(driver: Driver) -> Object:
    """The Node."""
    return driver.cluster.get("node", driver.node.name) or {}


def labels(driver: Driver) -> dict[str, str]:
    """Those of the Node."""
    found: dict[str, str] = node(driver)["metadata"]["labels"]
    return found


def device_info(driver: Driver) -> Any:
    """What the ConfigMap says; None if there is none."""
    name = f"mindx-dl-deviceinfo-{driver.node.name}"
    found = driver.cluster.get("configmap", name, namespace="kube-system")
    return found and json.loads(found["data"]["DeviceInfoCfg"])


def free(driver: Driver) -> list[str]:
    """The NPUs that the ConfigMap lists as free."""
    info = device_info(driver)
    text: str = info["DeviceInfo"]["DeviceList"].get(RESOURCE, "") if info else ""
    return text.split(",")


def wait_free(driver: Driver, *numbers: int) -> Any:
    """Wait until the ConfigMap lists just these NPUs as free; returns all of it."""
    wanted = [f"Ascend910-{number}" for number in numbers]
    driver.cluster.wait(lambda: free(driver) == wanted, f"NPUs {numbers} free")
    return device_info(driver)


def wait_served(driver: Driver) -> None:
    """Wait until the kubelet knows the daemon that runs now, and the scheduler all NPUs."""
    plugin = Plugin(driver)
    plugin.wait_registered(1)
    plugin.wait_allocatable(NPUS)


def chosen(name: str, *numbers: int, init_containers: Sequence[Object] = ()) -> Object:
    """A pod for which Volcano chose NPUs."""
    about = pod(name, containers=[asking("main", len(numbers))], init_containers=init_containers)
    about["metadata"]["annotations"] = {
        RESOURCE: ",".join(f"Ascend910-{number}" for number in numbers),
        "predicate-time": "1795280460000000000",
    }
    return about


def test_node_and_config_map_describe_the_npus(compat: Driver) -> None:
    """The API server stores labels, annotation and ConfigMap as Volcano reads them."""
    compat.cluster.wait(lambda: "accelerator" in labels(compat), "the labels")
    assert (
        labels(compat).items()
        >= {
            "accelerator": "huawei-Ascend910",
            "node.kubernetes.io/npu.chip.name": "910B4",
            "servertype": "Ascend910B-20",
            "mind-cluster/npu-chip-memory": "32G",
        }.items()
    )
    infos = json.loads(node(compat)["metadata"]["annotations"]["baseDeviceInfos"])
    assert [info["IP"] for info in infos.values()] == [
        f"192.168.100.{101 + n}" for n in range(NPUS)
    ]
    info = wait_free(compat, *range(NPUS))
    assert info["CheckCode"] == check_code(info["DeviceInfo"])


def test_pod_gets_the_npus_that_were_chosen(compat: Driver, space: Space) -> None:
    """It does not get the nearest NPUs; pod and ConfigMap name the chosen ones."""
    wait_served(compat)
    space.apply(chosen("train", 4, 6))
    space.wait_phase("train")
    assert space.davinci_nodes("train") == ["/dev/davinci4", "/dev/davinci6"]

    def annotation(name: str) -> str:
        about = space.get("pod", "train") or {}
        return str(about["metadata"]["annotations"].get(name, ""))

    space.wait(lambda: annotation("huawei.com/AscendReal"), "the annotation")
    assert annotation("huawei.com/AscendReal") == "Ascend910-4,Ascend910-6"
    assert annotation("huawei.com/kltDev") == "Ascend910-4,Ascend910-6"
    assert annotation("predicate-time") == str(2**64 - 1)
    configured = json.loads(annotation(CONFIGURATION))
    about = space.get("pod", "train") or {}
    assert (configured["server_id"], configured["host_ip"]) == (
        about["metadata"]["uid"],
        about["status"]["hostIP"],
    )
    assert configured["devices"] == [
        {"device_id": "4", "device_ip": "192.168.100.105"},
        {"device_id": "6", "device_ip": "192.168.100.107"},
    ]
    wait_free(compat, 0, 1, 2, 3, 5, 7)


def test_every_container_gets_of_what_was_chosen(compat: Driver, space: Space) -> None:
    """An init container that wants fewer gets chosen NPUs too."""
    wait_served(compat)
    look = ("sh", "-c", "ls /dev | grep -c davinci[0-9]")
    space.apply(chosen("train", 1, 3, 7, init_containers=[asking("first", 2, command=look)]))
    space.wait_phase("train")
    assert space.log("train", "first").strip() == "2"
    assert space.davinci_nodes("train") == [f"/dev/davinci{number}" for number in (1, 3, 7)]


def test_pod_is_refused_npus_that_were_not_chosen(compat: Driver, space: Space) -> None:
    """Its status says why, and how to go on."""
    wait_served(compat)
    space.apply(chosen("old", 4))
    space.wait_phase("old")
    space.apply(chosen("train", 4))
    space.wait_phase("train", "Failed")
    status = (space.get("pod", "train") or {})["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    name = f"pod {space.name}/train"
    assert (
        f"NPUs 4 were chosen for {name}, and the kubelet gives 0 (4 is held by" in status["message"]
    )
    assert "delete the pod" in status["message"]


def test_pod_that_has_its_npu_waits_for_none(compat: Driver, space: Space) -> None:
    """Annotations forged on a pod that has not started do not keep chosen NPUs from other pods."""
    wait_served(compat)
    wait_free(compat, *range(NPUS))  # it still lists those of the test before
    space.apply(chosen("forger", 1, init_containers=[asking("never", 1)]))
    space.wait(lambda: "Ascend910-1" not in free(compat), "the NPU of the pod that waits")
    forged = {RESOURCE: "Ascend910-4", "predicate-time": "1"}
    space.cluster.api.patch(
        "pod", "forger", namespace=space.name, change={"metadata": {"annotations": forged}}
    )
    space.apply(chosen("train", 5))
    space.wait_phase("train")
    assert space.davinci_nodes("train") == ["/dev/davinci5"]


def test_agent_writes_nothing_else_on_nodes(compat: Driver, agent: ApiServer) -> None:
    """The policies narrow what RBAC gives; the API server has nothing to say against them."""
    for change, words in NOT_OURS:
        with pytest.raises(ClusterError, match=words):
            agent.patch("node", compat.node.name, change=change)
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another"}}
    compat.cluster.api.create(other)
    try:
        with pytest.raises(ClusterError, match="may only write to that node"):
            agent.patch("node", "another", change={"metadata": {"labels": {"accelerator": "a"}}})
    finally:
        compat.cluster.api.delete("node", "another")
    test_security.test_policies_compile(compat)


@pytest.mark.usefixtures("compat")
def test_agent_writes_nothing_else_on_pods_and_config_maps(agent: ApiServer, space: Space) -> None:
    """It writes nothing on pods of other nodes either."""
    space.apply(pod("gated", is_gated=True), chosen("here", 7))
    space.wait_phase("here")
    wrong: list[tuple[str, Object, str]] = [
        ("gated", {"metadata": {"annotations": {"predicate-time": "1"}}}, "that node and its pods"),
        ("here", {"metadata": {"labels": {"a": "b"}}}, "may not write this label"),
        ("here", {"spec": {"activeDeadlineSeconds": 1}}, "only write labels and annotations"),
    ]
    for name, change, words in wrong:
        with pytest.raises(ClusterError, match=words):
            agent.patch("pod", name, namespace=space.name, change=change)
    about = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mindx-dl-deviceinfo-other", "namespace": "kube-system"},
    }
    with pytest.raises(ClusterError, match="may only write the ConfigMap"):
        agent.create(about, namespace="kube-system")
