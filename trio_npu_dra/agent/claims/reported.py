"""Notes what the API server has of this driver's devices in the status of claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from trio_npu_dra.kit.api.claims import ClaimReader
from trio_npu_dra.kit.api.objects import DeviceStatus, ResourceClaim
from trio_npu_dra.kit.base.observable import Observable


@dataclass(frozen=True, slots=True)
class StatusObserver:
    """A ClaimReader that notes the status of our devices at each read: so no read is for it alone.

    Attributes:
        reader: Reads the claims.
        reported: Gets the statuses of our devices by the claim's UID; without any it is absent.
        driver_name: The driver of our devices.
    """

    reader: ClaimReader
    reported: Observable[Mapping[str, tuple[DeviceStatus, ...]]]
    _: KW_ONLY
    driver_name: str

    async def get(
        self,
        kind: type[ResourceClaim],
        name: str,
        namespace: str | None = None,
        *,
        is_cached: bool = False,
    ) -> ResourceClaim:
        """Read one claim, and note its status; see `ClaimReader`."""
        claim = await self.reader.get(kind, name, namespace, is_cached=is_cached)
        uid = claim.metadata.uid or ""
        ours = tuple(one for one in claim.status.devices if one.driver == self.driver_name)
        if ours != self.reported.value.get(uid, ()):
            others = {key: one for key, one in self.reported.value.items() if key != uid}
            self.reported.set(others | ({uid: ours} if ours else {}))
        return claim
