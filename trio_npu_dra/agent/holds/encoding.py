"""One holder's record as the content of a file.

| field | value |
|---|---|
| `version` | of the format: 2; a record of a newer one cannot be read |
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
| `metadata` | what containers can read of its devices, by request; absent if nothing |
| `doubted` | true if nobody seems to need it |

`parse` looks at all that is used of a record, so no other code meets a part of another form. Fields
that are not in the table are left out when the record is written again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache, lru_cache
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, to_json

from trio_npu_dra.agent.config.effective import DEFAULT_CONFIG, EffectiveConfig
from trio_npu_dra.agent.config.model import ContainerLibraries, VisibleDevices
from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState, HeldDevice
from trio_npu_dra.agent.holds.hold import Holder, HolderKind
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import RecordCorrupt, RecordRefused

FORMAT: Final = 2
_MOST: Final = storage.SIZE_LIMIT - (64 << 10)  # bytes; it can grow, and is read all the same

_Node = Annotated[str, Field(pattern=r"^/dev/[A-Za-z0-9_./-]+$")]
_Request = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, defer_build=True)


class _WireHolder(_Wire):
    namespace: str
    name: str
    uid: str


class _WireDevice(_Wire):
    device: str
    family: ChipFamily
    device_nodes: dict[str, _Node]


class _WireConfig(_Wire):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    shared: bool = DEFAULT_CONFIG.shared
    container_libraries: ContainerLibraries | None = DEFAULT_CONFIG.container_libraries
    driver_mounts: bool = DEFAULT_CONFIG.driver_mounts
    ub_files: bool = DEFAULT_CONFIG.ub_files
    visible_devices: VisibleDevices = DEFAULT_CONFIG.visible_devices
    env: dict[str, str] = {}


class _WireAllocated(_Wire):
    requests: tuple[str, ...]
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None
    config: _WireConfig | None = None


class _WirePartition(_Wire):
    template: str
    number: int | None = None
    vnpu: int | None = None
    chip_node: _Node


class _WireHolds(_Wire):
    """Who holds what; a record is checked for it before it is written, too."""

    version: int = Field(ge=FORMAT)
    claim: _WireHolder
    allocation: tuple[_WireAllocated, ...]
    devices: tuple[_WireDevice, ...] = Field(min_length=1)

    @field_validator("version")
    @classmethod
    def _known(cls, version: int) -> int:
        if version > FORMAT:
            words = "{version} is of a newer driver, this one knows {known}"
            raise PydanticCustomError("newer", words, {"version": version, "known": FORMAT})
        return version

    @model_validator(mode="after")
    def _once(self) -> Self:
        names = [device.device for device in self.devices]
        allocated = {given.device for given in self.allocation}
        if len({*names}) < len(names) or {*names} != allocated:
            raise PydanticCustomError("devices", "devices are not those of the allocation, once")
        return self


class _WireRecord(_WireHolds):
    boot_id: str = ""
    kind: HolderKind = HolderKind.CLAIM
    state: EntryState
    chips: dict[str, tuple[Any, ...]]
    pieces: dict[str, _WirePartition] = {}
    steps: tuple[str, ...] = ()
    edits: dict[str, Any] | None = None
    metadata: dict[_Request, Any] = {}
    doubted: bool = False

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not all(one.device_nodes or one.device in self.pieces for one in self.devices):
            raise PydanticCustomError("nodes", "deviceNodes lack those of a device")
        if not all(self.chips.get(device.device) for device in self.devices):
            raise PydanticCustomError("chips", "chips lack those of a device")
        # A pod of a device plugin has no file of its own, a leftover needs none.
        if not (self.edits or self.kind is HolderKind.POD or self.state is EntryState.UNDOING):
            raise PydanticCustomError("edits", "edits are missing")
        return self


_Holds = TypeVar("_Holds", bound=_WireHolds)


class _WireAbout(_Wire):
    name: str
    generation: int = Field(strict=True)  # it is counted on as it is


class _WireNamed(_Wire):
    name: str


class _WireRequest(_Wire):
    devices: tuple[_WireNamed, ...]


class _WireDocument(_Wire):
    """What is used of the metadata of a request (`claims.metadata`, `kit.base.device_metadata`)."""

    metadata: _WireAbout
    pod_claim_name: str | None = None
    requests: tuple[_WireRequest]


# --- reading -------------------------------------------------------------------------------------


def parse(data: bytes, *, uid: str) -> Entry:
    """Read the record of the holder *uid*.

    Raises:
        RecordCorrupt: It is no record, one of another holder, or of a newer version.
    """
    record = _record(_WireRecord, data, uid)
    configs = {given.device: _config(given.config) for given in record.allocation}
    with _told():
        chips = {name: _chips().validate_python(of) for name, of in record.chips.items()}
        for document in record.metadata.values():
            _WireDocument.model_validate(document)
    return Entry(
        holder=Holder(
            kind=record.kind,
            namespace=record.claim.namespace,
            name=record.claim.name,
            uid=uid,
        ),
        state=record.state,
        allocation=tuple(
            Allocated(**given.model_dump() | {"config": configs[given.device]})
            for given in record.allocation
        ),
        devices=tuple(
            HeldDevice(
                device=one.device,
                family=one.family,
                nodes=one.device_nodes,
                chips=chips[one.device],
                config=configs[one.device],
                **_partition(record.pieces.get(one.device)),
            )
            for one in record.devices
        ),
        steps=record.steps,
        edits=record.edits,
        metadata=record.metadata,
        boot_id=record.boot_id,
        doubted=record.doubted,
    )


def _record(kind: type[_Holds], data: bytes, uid: str) -> _Holds:
    if not data:
        raise RecordCorrupt("it is empty")
    with _told():
        record = kind.model_validate_json(data)
    if record.claim.uid != uid:
        raise RecordCorrupt(f"claim.uid={record.claim.uid!r} does not fit the file's name")
    return record


@contextmanager
def _told() -> Iterator[None]:
    """Say in one line which field is wrong."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise RecordCorrupt(f"{place}: {first['msg']}") from None


def _config(known: _WireConfig | None) -> EffectiveConfig:
    if known is None:
        return DEFAULT_CONFIG
    return EffectiveConfig(**known.model_dump() | {"env": tuple(known.env.items())})


def _partition(piece: _WirePartition | None) -> dict[str, Any]:
    """The fields of `HeldDevice` about a partition."""
    if piece is None:
        return {}
    partition = Partition(template=piece.template, number=piece.number, vnpu=piece.vnpu)
    return {"partition": partition, "chip_node": piece.chip_node}


# --- writing -------------------------------------------------------------------------------------


def encode(entry: Entry) -> bytes:
    """The file's content."""
    return to_json(_wire(entry), inf_nan_mode="null") + b"\n"


def checked(entry: Entry) -> bytes:
    """The file's content, which can be read back.

    Raises:
        RecordRefused: It could not be read back.
    """
    data = encode(entry)
    # A record grows while its claim is served: steps, ids of vNPUs, files of a newer host. A claim
    # that was prepared must stay unpreparable, so a record that is being undone may be larger.
    limit = storage.SIZE_LIMIT if entry.state is EntryState.UNDOING else _MOST
    if len(data) > limit:
        raise RecordRefused(
            f"{entry.holder.titled} is too large to be recorded on the node: its record would have "
            f"{len(data)} bytes, at most {limit} are read back, and {_largest_part(entry)}"
        )
    try:
        _record(_WireHolds, data, entry.uid)
    except RecordCorrupt as error:
        raise RecordRefused(
            f"the record of {entry.holder.titled} could not be read back ({error})"
        ) from error
    return data


def _largest_part(entry: Entry) -> str:
    env = sum(len(to_json(given.config.env)) for given in entry.allocation)
    edits = len(to_json(entry.edits))
    if env > edits:
        return (
            f"{env} of them are the env of its configs, once for each of its "
            f"{len(entry.allocation)} devices and shares"
        )
    return f"{edits} of them are its CDI spec"


def _wire(entry: Entry) -> dict[str, Any]:
    return {
        "version": FORMAT,
        "bootId": entry.boot_id,
        "claim": {
            "namespace": entry.holder.namespace,
            "name": entry.holder.name,
            "uid": entry.holder.uid,
        },
        "kind": entry.holder.kind,
        "state": entry.state,
        "steps": list(entry.steps),
        "allocation": [
            {
                "requests": list(given.requests),
                "pool": given.pool,
                "device": given.device,
                "adminAccess": given.admin_access,
                "shareId": given.share_id,
                **_config_wire(given.config),
            }
            for given in entry.allocation
        ],
        "chips": {device.device: _chips_wire(device.chips) for device in entry.devices},
        "pieces": {
            device.device: {
                "template": device.partition.template,
                "number": device.partition.number,
                "vnpu": device.partition.vnpu,
                "chipNode": device.chip_node,
            }
            for device in entry.devices
            if device.partition
        },
        "devices": [
            {
                "device": device.device,
                "family": device.family,
                "deviceNodes": dict(device.nodes),
            }
            for device in entry.devices
        ],
        "edits": entry.edits,
        **({"metadata": entry.metadata} if entry.metadata else {}),
        **({"doubted": True} if entry.doubted else {}),
    }


def _config_wire(config: EffectiveConfig) -> dict[str, Any]:
    if config == DEFAULT_CONFIG:
        return {}
    wire = _WireConfig(**asdict(config) | {"env": dict(config.env)})
    # An older version understands it as long as no field is written that it does not know.
    return {"config": wire.model_dump(by_alias=True, exclude_defaults=True)}


@lru_cache(maxsize=64)
def _chips_wire(chips: tuple[Chip, ...]) -> Any:
    """All known facts except health, which changes; not to be changed."""
    return _chips().dump_python(
        chips,
        mode="json",
        by_alias=True,
        exclude={"__all__": {"health", "unlisted"}},
        exclude_none=True,
    )


@cache
def _chips() -> TypeAdapter[tuple[Chip, ...]]:
    return TypeAdapter(tuple[Chip, ...], config=ConfigDict(alias_generator=to_camel))
