"""Notes what the API server has of this driver's devices in the status of claims."""

from collections.abc import Mapping
from typing import TypeAlias

from trio_npu_dra.kit.api.objects import DeviceStatus, ResourceClaim
from trio_npu_dra.kit.base.observable import Observable

Reported: TypeAlias = Observable[Mapping[str, tuple[DeviceStatus, ...]]]
"""The statuses of our devices by the claim's UID; a claim that was not read is absent."""


def note_status(claim: ResourceClaim, reported: Reported, *, driver_name: str) -> None:
    """Note what a claim that was read says of our devices."""
    ours = tuple(one for one in claim.status.devices if one.driver == driver_name)
    reported.set({**reported.value, claim.metadata.uid or "": ours})
