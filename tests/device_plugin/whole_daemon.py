"""What tests of the whole daemon with chips in resources see of it."""

from __future__ import annotations

import json
from typing import Any

from dev.rig.parts import Rig
from tests.device_plugin.instance import RESOURCE, ids
from trio_npu_dra.kit.api.objects import Device, ResourceSlice
from trio_npu_dra.lab.standins.device_manager import DeviceManager


def spec(rig: Rig) -> Any:
    """The CDI file of the devices."""
    return json.loads((rig.folder / "cdi/npu.huawei.com-device.json").read_bytes())


def in_file(rig: Rig) -> list[str]:
    """The devices that the container runtime can give."""
    return [device["name"] for device in spec(rig)["devices"]]


def devices(rig: Rig) -> list[Device]:
    """The devices in the DRA pool."""
    return [device for one in rig.api.all(ResourceSlice) for device in one.spec.devices or ()]


def pool(rig: Rig) -> list[str]:
    """Their names."""
    return [device.name for device in devices(rig)]


async def allocated(manager: DeviceManager, pod: str, *numbers: int) -> list[str]:
    """Give chips to a pod, as a kubelet does."""
    (names,) = await manager.allocate(RESOURCE, ids(*numbers))
    manager.pods[("ml", pod)] = {RESOURCE: ids(*numbers)}
    return names
