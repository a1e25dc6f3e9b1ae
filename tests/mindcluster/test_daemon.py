"""The whole daemon with the flag, at stand-ins for kubelet and API server."""

from __future__ import annotations

import json

import trio

from tests.mindcluster.chips import RESOURCE
from tests.rig import NODE, Rig
from tests.waiting import until
from trio_npu_dra.kube.applied import ConfigMap
from trio_npu_dra.kube.objects import Node


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
