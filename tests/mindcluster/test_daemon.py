"""The whole daemon with the flag, at stand-ins for kubelet and API server."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from dev.rig.parts import NODE, Rig
from dev.rig.waiting import until
from tests.mindcluster.chips import RESOURCE
from trio_npu_dra.agent.mindcluster import writers
from trio_npu_dra.agent.mindcluster.volcano import LATEST, REAL, TIME
from trio_npu_dra.kit.api.applied import ConfigMap
from trio_npu_dra.kit.api.bodies import LIST_LIMIT
from trio_npu_dra.kit.api.objects import Node
from trio_npu_dra.kit.api.pods import Pod
from trio_npu_dra.kit.kubelet.device_plugin import registration


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and writes follow each other faster than on a node."""
    monkeypatch.setattr(registration, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(writers, "PAUSE_SECONDS", 0.01)


def free(rig: Rig) -> list[str]:
    """The devices that Volcano may give out."""
    for found in rig.api.all(ConfigMap):
        info = json.loads((found.data or {})["DeviceInfoCfg"])
        return list(filter(None, info["DeviceInfo"]["DeviceList"][RESOURCE].split(",")))
    return []


def labels(rig: Rig) -> dict[str, str]:
    """Those of the Node."""
    (node,) = rig.api.all(Node)
    return node.metadata.labels or {}


async def test_chips_of_the_resource_are_told_to_volcano(rig: Rig) -> None:
    """Those in the DRA pool are not; without the resource the Node says nothing any more."""
    rig.device_plugin, rig.mindcluster_compat = "0-2", True
    with trio.fail_after(20):
        async with rig.device_manager() as manager, rig.registered():
            await until(lambda: free(rig) == ["Ascend910-0", "Ascend910-1", "Ascend910-2"])
            await until(lambda: labels(rig).get("accelerator") == "huawei-Ascend910")
            await manager.wait_for(RESOURCE, *free(rig))
            await manager.allocate(RESOURCE, ["Ascend910-1"])
            await until(lambda: free(rig) == ["Ascend910-0", "Ascend910-2"])
        rig.device_plugin = ""
        async with rig.registered():
            await until(lambda: labels(rig) == {})
    (told,) = rig.api.all(ConfigMap)
    assert told.metadata.name == f"mindx-dl-deviceinfo-{NODE}"


async def test_a_pod_gets_the_chips_that_volcano_chose(rig: Rig) -> None:
    """From its annotation over the CDI names to what is written on it."""
    rig.device_plugin, rig.mindcluster_compat = "all", True
    annotations = {RESOURCE: "Ascend910-5,Ascend910-7", TIME: "1"}
    rig.api.create(
        "pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "train", "namespace": "ml", "annotations": annotations},
            "spec": {
                "nodeName": NODE,
                "containers": [{"resources": {"limits": {RESOURCE: "2"}}}],
            },
            "status": {"phase": "Pending"},
        },
    )
    with trio.fail_after(20):
        async with rig.device_manager() as manager, rig.registered():
            await manager.wait_for(RESOURCE, *(f"Ascend910-{number}" for number in range(8)))
            every = [f"Ascend910-{number}" for number in range(8)]
            taken = await manager.preferred(RESOURCE, 2, available=every)
            (names,) = await manager.allocate(RESOURCE, taken)
            chips = [name.rpartition("=")[2] for name in names]
            assert chips == ["Ascend910-5", "Ascend910-7"]

            def written() -> dict[str, str]:
                (pod,) = rig.api.all(Pod)
                return pod.metadata.annotations or {}

            await until(lambda: REAL in written())
            assert written()[REAL] == "Ascend910-5,Ascend910-7"
            assert written()[TIME] == str(LATEST)
            await until(lambda: len(free(rig)) == 6)
            assert "Ascend910-0" in free(rig)


async def test_no_pod_keeps_others_from_their_chips(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever tenants write on the node, Allocate goes on; what cannot be read is in the log."""
    rig.device_plugin, rig.mindcluster_compat = "all", True

    def pending(name: str, annotations: dict[str, str], **container: Any) -> None:
        meta = {"name": name, "namespace": "evil", "annotations": annotations}
        spec = {"nodeName": NODE, "containers": [container]}
        rig.api.create("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    forged = {RESOURCE: "Ascend910-5", TIME: "1"}
    large = {"args": ["x" * LIST_LIMIT]}
    pending("forged", forged, **large)
    for number in range(20):
        pending(f"large-{number}", {}, **large)
    for number in range(50):  # the metadata of all is larger than one answer may be
        pending(f"many-{number}", {"a": "," * 250_000})
    with trio.fail_after(60):
        async with rig.device_manager() as manager, rig.registered():
            await manager.wait_for(RESOURCE, *(f"Ascend910-{number}" for number in range(8)))
            for number in (1, 2):
                assert await manager.allocate(RESOURCE, [f"Ascend910-{number}"])
    (line,) = [one for one in caplog.records if "a pod cannot be read" in one.message]
    assert vars(line)["pod"] == "evil/forged"
    lists = [one for one in rig.api.requests if one.path.endswith("/pods")]
    assert [one.path for one in lists].count("/api/v1/namespaces/evil/pods") == 1
    assert len(lists) < 25  # pages, not pods
