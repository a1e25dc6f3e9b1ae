"""The first format of records, to it and from it; versions before 0.1.0 know no other.

Such a version, here *the old one*, runs beside this one during a rolling update, and alone after a
rollback: it must answer from our records, guard their NPUs and make their CDI files anew. So each
record has the fields of the first format, `claim` and `devices` (below), and what came later stands
beside them, in fields that the old one keeps and does not read. Records without those later fields
are its own.

What the old one does with `devices` decides what must be in it:

- It answers for a claim if `devices` equals its own plan of the allocation. So a device is there
  once, with all its requests, and counts as admin access only if all of them do.
- It compares holds by name and knows no modules. So beside a module there is an entry for each of
  its dies, under the die's own name: else it would give a die of the module to another claim.
- Nor does it know pieces. So beside a piece there is an entry for its chip: else it would give all
  of the chip to another claim. It does not remove vNPUs: before it comes back, pods with pieces
  that were cut for them must have ended.
- It makes the CDI file from `devices`, so the module has the nodes of all its dies. The CDI devices
  that it makes of the dies besides are asked for by nobody.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from trio_npu_dra.agent.holds.entry import Allocated, Entry, HeldDevice
from trio_npu_dra.ascend.model import ChipFamily


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class ReleasedClaim(_Part):
    """Which claim it is."""

    namespace: str
    name: str
    uid: str


class ReleasedDevice(_Part):
    """One device of the claim; of a family that this version may not know."""

    requests: tuple[str, ...]
    pool: str
    device: str
    admin_access: bool = False
    family: str
    device_nodes: dict[str, str]


class ReleasedRecord(_Part):
    """A claim that is prepared on this node; *version* is higher in newer formats."""

    version: int = Field(1, ge=1)
    boot_id: str = ""
    claim: ReleasedClaim
    devices: tuple[ReleasedDevice, ...] = Field(min_length=1)

    @field_validator("devices")
    @classmethod
    def _once(cls, devices: tuple[ReleasedDevice, ...]) -> tuple[ReleasedDevice, ...]:
        names = [device.device for device in devices]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))} is there twice")
        return devices


def from_released(
    record: ReleasedRecord,
) -> tuple[tuple[Allocated, ...], tuple[HeldDevice, ...]]:
    """The allocation that a record of the first format answers for, and what it gives."""
    allocation = tuple(
        Allocated(
            requests=device.requests,
            pool=device.pool,
            device=device.device,
            admin_access=device.admin_access,
        )
        for device in record.devices
    )
    devices = tuple(
        HeldDevice(device=device.device, family=_known(device.family), nodes=device.device_nodes)
        for device in record.devices
    )
    return allocation, devices


def _known(name: str) -> ChipFamily | None:
    """The family of that name; None for one of a newer version."""
    return ChipFamily(name) if name in set(ChipFamily) else None


def to_released(entry: Entry) -> list[dict[str, Any]]:
    """The `devices` of a record, none twice: two pieces can be of one chip."""
    each = (each for device in entry.devices for each in _released(entry, device))
    return list({one["device"]: one for one in each}.values())


def _released(entry: Entry, device: HeldDevice) -> list[dict[str, Any]]:
    given = [each for each in entry.allocation if each.device == device.device]
    shared = {
        "requests": list(dict.fromkeys(name for each in given for name in each.requests)),
        "pool": given[0].pool,
        "adminAccess": all(each.admin_access for each in given),
        "family": device.family,
    }
    dies = device.chips if len(device.chips) > 1 or device.piece else ()
    return [
        shared | {"device": device.device, "deviceNodes": dict(device.nodes)},
        *(
            shared | {"device": die.name, "deviceNodes": {die.device_node: die.device_node}}
            for die in dies
        ),
    ]
