"""Notes what the API server has of this driver's devices in the status of claims."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from trio_npu_dra.kit.api.objects import DeviceStatus, ResourceClaim
from trio_npu_dra.kit.base.observable import Observable

Reported: TypeAlias = Observable[Mapping[str, tuple[DeviceStatus, ...]]]
"""The statuses of our devices by the claim's UID; a claim without any is absent."""


@dataclass(frozen=True, slots=True)
class StatusObserver:
    """Notes the status of our devices when a claim is read.

    Attributes:
        reported: Gets the statuses of our devices by the claim's UID.
        driver_name: The driver of our devices.
    """

    reported: Reported
    driver_name: str

    def __call__(self, claim: ResourceClaim) -> None:
        """Note the status of a claim."""
        uid = claim.metadata.uid or ""
        ours = tuple(one for one in claim.status.devices if one.driver == self.driver_name)
        if self.reported.value.get(uid, ()) != ours:
            others = {key: one for key, one in self.reported.value.items() if key != uid}
            self.reported.set(others | ({uid: ours} if ours else {}))


def forget_ended(reported: Reported, held: Container[str]) -> None:
    """Forget the claims that hold nothing any more: all but those with the UIDs *held*."""
    kept = {uid: one for uid, one in reported.value.items() if uid in held}
    if len(kept) < len(reported.value):
        reported.set(kept)
