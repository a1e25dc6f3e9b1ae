"""What one claim's record says, of this version or a newer one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trio_npu_dra.errors import RecordCorrupt
from trio_npu_dra.npu.model import ChipFamily

_FORMAT = 1


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True
    )


class _Format(_Part):
    """What every format has."""

    version: int


class RecordedClaim(_Part):
    """Which claim it is."""

    namespace: str
    name: str
    uid: str


class RecordedDevice(_Part):
    """One device of the claim, with all that its CDI file needs when no chip can be asked.

    Attributes:
        requests: Names of the requests it serves.
        pool: The pool it was allocated from.
        device: Its name in the pool.
        admin_access: Whether the claim only looks on and another one may hold the device.
        family: The chip generation, which decides what a container needs besides.
        device_nodes: Device nodes: the container's path to the host's path.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    admin_access: bool = False
    family: ChipFamily
    device_nodes: dict[str, str]


class ClaimRecord(_Part):
    """A claim that is prepared on this node.

    Attributes:
        version: The format; a higher one is read too, its fields that we do not know are kept.
        boot_id: The boot of the node it was written in; empty when unknown.
        claim: Which claim it is.
        devices: Its devices, none twice.
    """

    version: int = Field(_FORMAT, ge=1)
    boot_id: str = ""
    claim: RecordedClaim
    devices: tuple[RecordedDevice, ...]

    @property
    def uid(self) -> str:
        """The claim's UID."""
        return self.claim.uid

    def __str__(self) -> str:
        """The name people know the claim by."""
        return f"{self.claim.namespace}/{self.claim.name}"

    @property
    def device_names(self) -> list[str]:
        """The devices' names, for log lines."""
        return [device.device for device in self.devices]

    @property
    def host_nodes(self) -> frozenset[str]:
        """The host device nodes of all its chips."""
        return frozenset(node for device in self.devices for node in device.device_nodes.values())

    def has_devices_of(self, other: ClaimRecord) -> bool:
        """Whether both say the same of their devices, as far as this version knows."""
        return _known(self.devices) == _known(other.devices)

    @classmethod
    def parse(cls, data: bytes, *, uid: str) -> Self:
        """Read the record of the claim *uid*.

        Raises:
            RecordCorrupt: It is no record, or one of another claim.
        """
        try:
            record = cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise RecordCorrupt(f"{_age(data)}{field}: {first['msg']}") from None
        if record.uid != uid:
            raise RecordCorrupt(f"claim.uid={record.uid!r} does not fit the file's name")
        return record

    def to_json(self) -> bytes:
        """The file's content, with the fields that we do not know."""
        return self.model_dump_json(by_alias=True).encode() + b"\n"


def _known(devices: Sequence[RecordedDevice]) -> list[dict[str, object]]:
    return [
        {name: getattr(device, name) for name in RecordedDevice.model_fields} for device in devices
    ]


def _age(data: bytes) -> str:
    """Say that a record is of a newer format, if it is."""
    try:
        version = _Format.model_validate_json(data).version
    except ValidationError:
        return ""
    is_newer = version > _FORMAT
    return f"format {version} is of a newer driver, this one knows {_FORMAT}: " if is_newer else ""
