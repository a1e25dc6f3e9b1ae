"""Notes what the API server has of this driver's devices in the status of claims."""

from collections.abc import Mapping
from dataclasses import dataclass

from trio_npu_dra.kit.api.objects import DeviceStatus, ResourceClaim
from trio_npu_dra.kit.base.observable import Observable


@dataclass(frozen=True, slots=True)
class StatusObserver:
    """Notes the status of our devices when a claim is read.

    Attributes:
        reported: Gets the statuses of our devices by the claim's UID.
        driver_name: The driver of our devices.
    """

    reported: Observable[Mapping[str, tuple[DeviceStatus, ...]]]
    driver_name: str

    def __call__(self, claim: ResourceClaim) -> None:
        """Note the status of a claim."""
        uid = claim.metadata.uid or ""
        ours = tuple(one for one in claim.status.devices if one.driver == self.driver_name)
        if self.reported.value.get(uid) != ours:
            self.reported.set({**self.reported.value, uid: ours})
