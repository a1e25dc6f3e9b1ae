"""The rules of a version before 0.1.0 (68f1760) about records, frozen: data, not to be improved.

What it reads, what it answers, what it guards and what it writes back.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Family(StrEnum):
    """The families that it knows."""

    ASCEND_310 = "Ascend310"
    ASCEND_310B = "Ascend310B"
    ASCEND_310P = "Ascend310P"
    ASCEND_910 = "Ascend910"
    ASCEND_910B = "Ascend910B"
    ASCEND_910_A3 = "Ascend910A3"
    ASCEND_950 = "Ascend950"


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True
    )


class ReleasedClaim(_Part):
    """Its RecordedClaim."""

    namespace: str
    name: str
    uid: str


class ReleasedDevice(_Part):
    """Its RecordedDevice."""

    requests: tuple[str, ...]
    pool: str
    device: str
    admin_access: bool = False
    family: Family
    device_nodes: dict[str, str]


class ReleasedRecord(_Part):
    """Its ClaimRecord."""

    version: int = Field(1, ge=1)
    boot_id: str = ""
    claim: ReleasedClaim
    devices: tuple[ReleasedDevice, ...]

    def has_devices_of(self, planned: tuple[ReleasedDevice, ...]) -> bool:
        """Whether it answers for what it has planned from an allocation."""
        return known(self.devices) == known(planned)

    def holds(self, pool: str, device: str) -> bool:
        """Whether it keeps other claims from a device."""
        return any(
            not held.admin_access and (held.pool, held.device) == (pool, device)
            for held in self.devices
        )

    def to_json(self) -> bytes:
        """How it writes the record back."""
        return self.model_dump_json(by_alias=True).encode() + b"\n"


def known(devices: tuple[ReleasedDevice, ...]) -> list[dict[str, object]]:
    """What it compares of devices."""
    return [
        {name: getattr(device, name) for name in ReleasedDevice.model_fields} for device in devices
    ]
