"""One holder's record as the content of a file.

| field | value |
|---|---|
| `version` | of the format: 2; a record of another one cannot be read |
| `bootId` | the boot of the node in which it was written; empty when unknown |
| `claim` | namespace, name and UID of the holder |
| `kind` | of the holder |
| `state` | `EntryState` |
| `allocation` | the allocation, with a `config` where that is not the default |
| `devices` | with their device nodes by the names that its containers see |
| `chips` | of each device; their facts have the names of `ascend.model.Chip` |
| `pieces` | for each device that is a partition: which partition, and of which chip |
| `steps` | that were begun |
| `edits` | the CDI spec; null for what has no file of its own |
| `metadata` | what containers can read of its devices, by request |
| `doubted` | true for a suspected orphan: nobody seems to need it |

What has its usual value is left out. One model describes it, for reading and for writing, so that
no record is written that could not be read back. Fields that are not in the table are left out when
the record is written again.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WrapValidator,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from trio_npu_dra.agent.config.model import (
    DEFAULT_CONFIG,
    ContainerLibraries,
    EffectiveConfig,
    VisibleDevices,
)
from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState, HeldDevice
from trio_npu_dra.agent.holds.hold import Holder, HolderKind
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.kit.base.errors import RecordCorrupt

FORMAT: Final = 2

_UNSTEADY: Final = {"chips": {"__all__": {"__all__": {"health", "unlisted"}}}}
"""Of a chip all facts are recorded that do not change."""

_Node = Annotated[str, Field(pattern=r"^/dev/[A-Za-z0-9_./-]+$")]
_Request = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class _Wire(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )


class _Claim(_Wire):
    namespace: str
    name: str
    uid: str


def _from_pairs(env: Any) -> Any:
    return dict(env) if isinstance(env, tuple) else env


class _Config(_Wire):
    """An unknown field changes what containers get, so a record with one is not understood."""

    model_config = ConfigDict(extra="forbid", strict=True)

    shared: bool = DEFAULT_CONFIG.shared
    container_libraries: ContainerLibraries | None = DEFAULT_CONFIG.container_libraries
    driver_mounts: bool = DEFAULT_CONFIG.driver_mounts
    ub_files: bool = DEFAULT_CONFIG.ub_files
    visible_devices: VisibleDevices = DEFAULT_CONFIG.visible_devices
    env: Annotated[dict[str, str], BeforeValidator(_from_pairs)] = {}

    def effective(self) -> EffectiveConfig:
        return EffectiveConfig(**self.model_dump() | {"env": tuple(self.env.items())})


class _Allocated(_Wire):
    requests: tuple[str, ...]
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None
    config: _Config = _Config()


class _Device(_Wire):
    device: str
    family: ChipFamily
    nodes: dict[str, _Node] = Field(alias="deviceNodes")


class _Partition(_Wire):
    template: str
    number: int | None = None
    vnpu: int | None = None
    chip_node: str


class _About(_Wire):
    name: str
    generation: int = Field(strict=True)  # it is counted on as it is


class _Named(_Wire):
    name: str


class _Devices(_Wire):
    devices: tuple[_Named, ...]


class _Document(_Wire):
    """What is used of the metadata of a request (`claims.metadata`, `kit.base.device_metadata`)."""

    metadata: _About
    pod_claim_name: str | None = None
    requests: tuple[_Devices]


def _as_it_is(document: Any, check: Callable[[Any], object]) -> Any:
    check(document)
    return document


class _Record(_Wire):
    version: int
    boot_id: str = ""
    claim: _Claim
    kind: HolderKind = HolderKind.CLAIM
    state: EntryState
    steps: tuple[str, ...]
    allocation: tuple[_Allocated, ...]
    chips: dict[str, tuple[Chip, ...]]
    pieces: dict[str, _Partition] = {}
    devices: tuple[_Device, ...] = Field(min_length=1)
    edits: dict[str, Any] | None = None
    metadata: dict[_Request, Annotated[_Document, WrapValidator(_as_it_is)]] = {}
    doubted: bool = False

    @field_validator("version")
    @classmethod
    def _is_known(cls, version: int) -> int:
        if version != FORMAT:
            words = "{version} is of another version of the driver, this one knows {known}"
            raise PydanticCustomError("version", words, {"version": version, "known": FORMAT})
        return version

    @field_serializer("metadata")
    def _documents(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return metadata

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        names = [device.device for device in self.devices]
        if len({*names}) < len(names) or {*names} != {given.device for given in self.allocation}:
            raise PydanticCustomError("devices", "devices are not those of the allocation, once")
        if not all(one.nodes or one.device in self.pieces for one in self.devices):
            raise PydanticCustomError("nodes", "deviceNodes lack those of a device")
        if not all(self.chips.get(name) for name in names):
            raise PydanticCustomError("chips", "chips lack those of a device")
        # A pod of a device plugin has no file of its own, a leftover needs none.
        if not (self.edits or self.kind is HolderKind.POD or self.state is EntryState.UNDOING):
            raise PydanticCustomError("edits", "edits are missing")
        return self


def parse(data: bytes, *, uid: str) -> Entry:
    """Read the record of the holder *uid*.

    Raises:
        RecordCorrupt: It is no record, one of another holder, or of another version.
    """
    try:
        record = _Record.model_validate_json(data)
    except ValidationError as error:
        raise RecordCorrupt(_first(error)) from None
    if record.claim.uid != uid:
        raise RecordCorrupt(f"claim.uid={record.claim.uid!r} does not fit the file's name")
    configs = {given.device: given.config.effective() for given in record.allocation}
    return Entry(
        holder=Holder(kind=record.kind, **record.claim.model_dump()),
        state=record.state,
        allocation=tuple(
            Allocated(**given.model_dump() | {"config": configs[given.device]})
            for given in record.allocation
        ),
        devices=tuple(
            HeldDevice(
                **one.model_dump(),
                chips=record.chips[one.device],
                config=configs[one.device],
                **_partition(record.pieces.get(one.device)),
            )
            for one in record.devices
        ),
        steps=record.steps,
        edits=record.edits,
        metadata=record.metadata,  # type: ignore[arg-type]
        boot_id=record.boot_id,
        doubted=record.doubted,
    )


def _partition(piece: _Partition | None) -> dict[str, Any]:
    """The fields of `HeldDevice` about a partition."""
    if piece is None:
        return {}
    known = piece.model_dump(exclude={"chip_node"})
    return {"partition": Partition(**known), "chip_node": piece.chip_node}


def _first(error: ValidationError) -> str:
    """Which field is wrong, in one line."""
    first = error.errors(include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole"
    return f"{place}: {first['msg']}"


def encode(entry: Entry) -> bytes:
    """The file's content.

    Raises:
        RecordCorrupt: It could not be read back.
    """
    pieces = {
        one.device: {**asdict(one.partition), "chip_node": one.chip_node}
        for one in entry.devices
        if one.partition
    }
    known = {
        "version": FORMAT,
        "claim": entry.holder,
        "kind": entry.holder.kind,
        "chips": {one.device: one.chips for one in entry.devices},
        "pieces": pieces,
    }
    try:
        record = _Record.model_validate(vars(entry) | known)
    except ValidationError as error:
        raise RecordCorrupt(
            f"the record of {entry.holder.titled} could not be read back ({_first(error)})"
        ) from error
    # An older version understands it as long as no field is written that it does not know.
    text = record.model_dump_json(by_alias=True, exclude_defaults=True, exclude=_UNSTEADY)
    return text.encode() + b"\n"
