"""One holder's record as the content of a file, of this version or of a newer one.

| field | value |
|---|---|
| `version` | of the format: 2, or a higher one that a newer version wrote |
| `bootId` | the boot of the node in which it was written; empty when unknown |
| `claim` | namespace, name and UID of the holder |
| `kind` | of the holder |
| `state` | `EntryState` |
| `allocation` | the allocation, with a `config` where that is not the default |
| `devices` | with their device nodes by the names that its containers see |
| `chips` | of each device; their facts have the names of `ascend.model.Chip` |
| `pieces` | for each device that is a partition: which partition, and of which chip |
| `steps` | that were begun |
| `edits` | the CDI spec |
| `metadata` | what containers can read of its devices, by request; absent if nothing |
| `doubted` | true if nobody seems to need it |

Without `claim` and `devices` it is no record. All else may be of a newer version: this one uses the
fields that it understands to answer and to guard, and writes all others back.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import from_json, to_json

from trio_npu_dra.agent.config.effective import DEFAULT_CONFIG, EffectiveConfig
from trio_npu_dra.agent.config.model import ContainerLibraries, VisibleDevices
from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState, HeldDevice
from trio_npu_dra.agent.holds.hold import Holder, HolderKind
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.device_metadata import Documents
from trio_npu_dra.kit.base.errors import RecordCorrupt, RecordRefused

FORMAT: Final = 2
_MOST: Final = storage.SIZE_LIMIT - (64 << 10)  # bytes; it can grow, and is read all the same


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, defer_build=True)


class _WireHolder(_Wire):
    namespace: str
    name: str
    uid: str


class _WireDevice(_Wire):
    device: str
    family: str | None = None  # of a newer version perhaps
    device_nodes: dict[str, str]


class _WireRecord(_Wire):
    version: int = Field(ge=FORMAT)
    boot_id: str = ""
    claim: _WireHolder
    devices: tuple[_WireDevice, ...] = Field(min_length=1)

    @field_validator("devices")
    @classmethod
    def _once(cls, devices: tuple[_WireDevice, ...]) -> tuple[_WireDevice, ...]:
        names = [device.device for device in devices]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))} is there twice")
        return devices


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
    config: Any = None


class _WirePartition(_Wire):
    template: str
    number: int | None = None
    vnpu: int | None = None
    chip_node: str


_METADATA: Final = TypeAdapter(dict[str, dict[str, Any]], config=ConfigDict(defer_build=True))
_ALLOCATION: Final = TypeAdapter(tuple[_WireAllocated, ...], config=ConfigDict(defer_build=True))


# --- reading -------------------------------------------------------------------------------------


def parse(data: bytes, *, uid: str) -> Entry:
    """Read the record of the holder *uid*.

    Raises:
        RecordCorrupt: It is no record, or one of another holder.
    """
    record, stored = _record(data, uid), from_json(data)
    kind, edits = stored.get("kind", HolderKind.CLAIM), stored.get("edits")
    allocation, devices = _devices(record, stored)
    return Entry(
        holder=Holder(
            kind=next((one for one in HolderKind if one == kind), HolderKind.OTHER),
            namespace=record.claim.namespace,
            name=record.claim.name,
            uid=uid,
        ),
        state=_state(stored),
        allocation=allocation,
        devices=devices,
        steps=_steps(stored),
        edits=edits if isinstance(edits, dict) else None,
        metadata=_metadata(stored),
        boot_id=record.boot_id,
        doubted=stored.get("doubted") is True,
        stored=stored,
    )


def _record(data: bytes, uid: str) -> _WireRecord:
    """What makes it a record of the holder; all else may be as it likes."""
    if not data:
        raise RecordCorrupt("it is empty")
    try:
        record = _WireRecord.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise RecordCorrupt(f"{_age(data)}{place}: {first['msg']}") from None
    if record.claim.uid != uid:
        raise RecordCorrupt(f"claim.uid={record.claim.uid!r} does not fit the file's name")
    return record


def _age(data: bytes) -> str:
    """Say that a record has a newer format, if it has."""
    stored = None
    with suppress(ValueError):
        stored = from_json(data)
    version = stored.get("version") if isinstance(stored, dict) else None
    is_newer = isinstance(version, int) and version > FORMAT
    return f"format {version} is of a newer driver, this one knows {FORMAT}: " if is_newer else ""


def _state(stored: Mapping[str, Any]) -> EntryState:
    # One of a newer version counts as ready: its hold is more likely in use than half made.
    return next((one for one in EntryState if one == stored.get("state")), EntryState.READY)


def _steps(stored: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the steps; a name that no step has for each in another form."""
    steps = stored.get("steps", [])
    listed = steps if isinstance(steps, list) else [steps]
    return tuple(step if isinstance(step, str) else repr(step) for step in listed)


def _metadata(stored: Mapping[str, Any]) -> Documents:
    try:
        return _METADATA.validate_python(stored.get("metadata", {}))
    except ValidationError:
        return {}


def _devices(
    record: _WireRecord, stored: Mapping[str, Any]
) -> tuple[tuple[Allocated, ...], tuple[HeldDevice, ...]]:
    """The allocation, empty where it is not understood, and the devices that it gives.

    Partitions are kept as far as they can be read, because they have to be removed.
    """
    partitions = _known_partitions(stored)
    by_name = {
        one.device: HeldDevice(
            device=one.device,
            family=next((family for family in ChipFamily if family == one.family), None),
            nodes=one.device_nodes,
            config=None,
            **partitions.get(one.device, {}),
        )
        for one in record.devices
    }
    try:
        given = _ALLOCATION.validate_python(stored.get("allocation"))
    except ValidationError:
        given = ()
    names = dict.fromkeys(one.device for one in given)
    if not names or not names.keys() <= by_name.keys():
        return (), tuple(by_name.values())
    chips = stored.get("chips")
    known = chips if isinstance(chips, dict) else {}
    configs = {one.device: _config(one.config) for one in given}
    allocation = tuple(
        Allocated(**one.model_dump() | {"config": configs[one.device]}) for one in given
    )
    devices = tuple(
        by_name[name]._replace(chips=_known_chips(known.get(name)), config=configs[name])
        for name in names
    )
    return allocation, devices


def _config(given: Any) -> EffectiveConfig | None:
    """The effective config; None where that is not understood."""
    if given is None:
        return DEFAULT_CONFIG
    try:
        known = _WireConfig.model_validate(given)
    except ValidationError:
        return None
    return EffectiveConfig(**known.model_dump() | {"env": tuple(known.env.items())})


def _known_partitions(stored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of `HeldDevice` about partitions, by device, as far as they are understood."""
    pieces = stored.get("pieces")
    found = {}
    for name, item in pieces.items() if isinstance(pieces, dict) else ():
        with suppress(ValidationError):
            one = _WirePartition.model_validate(item)
            partition = Partition(template=one.template, number=one.number, vnpu=one.vnpu)
            found[name] = {"partition": partition, "chip_node": one.chip_node}
    return found


def _known_chips(given: Any) -> tuple[Chip, ...]:
    """The chips of one device; none where one of them is not understood."""
    try:
        return _chips().validate_python(given)
    except ValidationError:
        return ()


# --- writing -------------------------------------------------------------------------------------


def encode(entry: Entry) -> bytes:
    """The file's content, with all fields that were read and are not known here."""
    stored = entry.stored
    wire = {**_whole(entry), **stored}
    version = stored.get("version")
    wire["version"] = max(FORMAT, version) if isinstance(version, int) else FORMAT
    wire["bootId"] = entry.boot_id
    if _state(stored) is not entry.state:
        wire["state"] = entry.state
    if _steps(stored) != entry.steps:
        wire["steps"] = list(entry.steps)
    if entry.edits is not None:
        wire["edits"] = entry.edits
    if entry.metadata:
        wire["metadata"] = entry.metadata
    elif _metadata(stored):  # what is not understood stays, as above
        del wire["metadata"]
    wire.pop("doubted", None)
    if entry.doubted:
        wire["doubted"] = True
    return to_json(wire, inf_nan_mode="null") + b"\n"


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
        _record(data, entry.uid)
    except RecordCorrupt as error:
        raise RecordRefused(
            f"the record of {entry.holder.titled} could not be read back ({error})"
        ) from error
    return data


def _largest_part(entry: Entry) -> str:
    env = sum(len(to_json(given.config.env)) for given in entry.allocation if given.config)
    edits = len(to_json(entry.edits))
    if env > edits:
        return (
            f"{env} of them are the env of its configs, once for each of its "
            f"{len(entry.allocation)} devices and shares"
        )
    return f"{edits} of them are its CDI spec"


def with_devices(
    entry: Entry, devices: tuple[HeldDevice, ...], edits: Mapping[str, Any] | None
) -> Entry:
    """The entry with newly read facts of its devices."""
    found = {"devices", "chips", "pieces"}
    stored = {key: value for key, value in entry.stored.items() if key not in found}
    return replace(entry, devices=devices, edits=edits, stored=stored)


def _whole(entry: Entry) -> dict[str, Any]:
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
    }


def _config_wire(config: EffectiveConfig | None) -> dict[str, Any]:
    if config is None or config == DEFAULT_CONFIG:
        return {}
    wire = _WireConfig(**config._asdict() | {"env": dict(config.env)})
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
