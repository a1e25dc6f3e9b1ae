"""Each read of a claim says what the API server has of our devices in its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.claims.node import DRIVER, claim, result
from trio_npu_dra.agent.claims.reported import StatusObserver, forget_ended
from trio_npu_dra.kit.api.claims import ObservedReader
from trio_npu_dra.kit.api.objects import DeviceStatus, ResourceClaim
from trio_npu_dra.kit.base.observable import Observable


def said(device: str, driver: str = DRIVER) -> DeviceStatus:
    """What a driver says of a device."""
    return DeviceStatus(driver=driver, pool="node-a", device=device, data={"a": 1})


class Server:
    """Has one claim."""

    def __init__(self) -> None:
        self.claim = claim("a", result("npu-1"))

    def say(self, *devices: DeviceStatus) -> None:
        """Change what its status says of devices."""
        status = self.claim.status.model_copy(update={"devices": devices})
        self.claim = self.claim.model_copy(update={"status": status})

    async def get(self, *_: Any, **__: Any) -> ResourceClaim:
        """Read it."""
        return self.claim


async def test_what_a_claim_says_of_our_devices_is_noted() -> None:
    """Nothing of other drivers'; nothing is kept of a claim without any, or of one that ended."""
    server = Server()
    reported: Observable[Mapping[str, tuple[DeviceStatus, ...]]] = Observable({})
    reader = ObservedReader(server, [StatusObserver(reported, DRIVER)])
    uid = server.claim.metadata.uid

    server.say(said("gpu-1", "gpu.example.com"), said("npu-1"))
    assert await reader.get(ResourceClaim, "a", "default") is server.claim
    assert reported.value == {uid: (said("npu-1"),)}
    server.say(said("gpu-1", "gpu.example.com"))
    await reader.get(ResourceClaim, "a", "default")
    assert reported.value == {}

    reported.set({"uid-a": (said("npu-1"),), "uid-b": ()})
    forget_ended(reported, {"uid-b"})
    assert reported.value == {"uid-b": ()}
