"""One holder's record as the content of a file, of this version or of a newer one.

| field | says |
|---|---|
| `version` | the format: 2, or a higher one that a newer version wrote |
| `bootId` | the boot of the node it was written in; empty when unknown |
| `claim` | namespace, name and UID of the holder |
| `kind` | what the holder is |
| `state` | how far it got |
| `allocation` | what it answers for |
| `devices` | its devices, with their device nodes by the names that its containers see |
| `chips` | the chips of each device; their facts have the names of `ascend.model.Chip` |
| `pieces` | for each device that is a partition of a chip which partition, and of which chip |
| `steps` | the steps that were begun |
| `edits` | the CDI spec |
| `doubted` | that nobody seems to need it, if so |

An item of `allocation` has a `config` where that is not the default.

Without `claim` and `devices` there is no record. Of all else this version uses what it understands:
a record of a newer version answers and guards as far as it is known, and what is not known of it is
written back. A state that is not known counts as ready: a newer version was rolled back, so what
outlasted it is more likely a hold in use than one half made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache, lru_cache
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import from_json, to_json

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


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class _Format(_Part):
    version: int


class _Claim(_Part):
    namespace: str
    name: str
    uid: str


class _Device(_Part):
    device: str
    family: str | None = None  # of a newer version perhaps
    device_nodes: dict[str, str]


class _Record(_Part):
    version: int = Field(ge=FORMAT)
    boot_id: str = ""
    claim: _Claim
    devices: tuple[_Device, ...] = Field(min_length=1)

    @field_validator("devices")
    @classmethod
    def _once(cls, devices: tuple[_Device, ...]) -> tuple[_Device, ...]:
        names = [device.device for device in devices]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))} is there twice")
        return devices


class _Config(_Part):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    shared: bool = DEFAULT_CONFIG.shared
    container_libraries: ContainerLibraries | None = DEFAULT_CONFIG.container_libraries
    driver_mounts: bool = DEFAULT_CONFIG.driver_mounts
    ub_files: bool = DEFAULT_CONFIG.ub_files
    visible_devices: VisibleDevices = DEFAULT_CONFIG.visible_devices
    env: dict[str, str] = {}


class _Allocated(_Part):
    requests: tuple[str, ...]
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None
    config: Any = None


class _Partition(_Part):
    template: str
    number: int | None = None
    vnpu: int | None = None
    chip_node: str


_ALLOCATION: Final = TypeAdapter(tuple[_Allocated, ...])


# --- reading -------------------------------------------------------------------------------------


def parse(data: bytes, *, uid: str) -> Entry:
    """Read the record of the holder *uid*.

    Raises:
        RecordCorrupt: It is no record, or one of another holder.
    """
    try:
        record = _Record.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise RecordCorrupt(f"{_age(data)}{place}: {first['msg']}") from None
    if record.claim.uid != uid:
        raise RecordCorrupt(f"claim.uid={record.claim.uid!r} does not fit the file's name")
    stored: dict[str, Any] = from_json(data)
    allocation, devices = _devices(record, stored)
    edits = stored.get("edits")
    return Entry(
        holder=Holder(
            kind=_kind(stored),
            namespace=record.claim.namespace,
            name=record.claim.name,
            uid=record.claim.uid,
        ),
        state=_state(stored),
        allocation=allocation,
        devices=devices,
        steps=_steps(stored),
        edits=edits if isinstance(edits, dict) else None,
        boot_id=record.boot_id,
        doubted=stored.get("doubted") is True,
        stored=stored,
    )


def _kind(stored: Mapping[str, Any]) -> HolderKind:
    kind = stored.get("kind", HolderKind.CLAIM)
    is_known = isinstance(kind, str) and kind in set(HolderKind)
    return HolderKind(kind) if is_known else HolderKind.OTHER


def _state(stored: Mapping[str, Any]) -> EntryState:
    state = stored.get("state")
    return (
        EntryState(state)
        if isinstance(state, str) and state in set(EntryState)
        else EntryState.READY
    )


def _steps(stored: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the steps; in other forms than names, something that no step is called."""
    steps = stored.get("steps", [])
    return tuple(step if isinstance(step, str) else repr(step) for step in _listed(steps))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _devices(
    record: _Record, stored: Mapping[str, Any]
) -> tuple[tuple[Allocated, ...], tuple[HeldDevice, ...]]:
    """What the record answers for, nothing where that is not understood, and what that gives.

    What was made for the holder is known as far as it can be read, because it has to be removed.
    """
    partitions = _known_partitions(stored)
    by_name = {
        one.device: HeldDevice(
            device=one.device,
            family=ChipFamily(one.family) if one.family in set(ChipFamily) else None,
            nodes=one.device_nodes,
            config=None,
            **partitions.get(one.device, {}),
        )
        for one in record.devices
    }
    try:
        told = _ALLOCATION.validate_python(stored.get("allocation"))
    except ValidationError:
        return (), tuple(by_name.values())
    names = dict.fromkeys(given.device for given in told)
    if not names or not names.keys() <= by_name.keys():
        return (), tuple(by_name.values())
    chips = stored.get("chips")
    known = chips if isinstance(chips, dict) else {}
    configs = {given.device: _config(given.config) for given in told}
    allocation = tuple(
        Allocated(**given.model_dump() | {"config": configs[given.device]}) for given in told
    )
    devices = tuple(
        replace(by_name[name], chips=_known_chips(known.get(name)), config=configs[name])
        for name in names
    )
    return allocation, devices


def _config(told: Any) -> EffectiveConfig | None:
    """What the configs come to; None where that is not understood."""
    if told is None:
        return DEFAULT_CONFIG
    try:
        known = _Config.model_validate(told)
    except ValidationError:
        return None
    return EffectiveConfig(**known.model_dump() | {"env": tuple(known.env.items())})


def _known_partitions(stored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What makes devices partitions, by their names; without those that are not understood."""
    told = stored.get("pieces")
    found = {}
    for name, item in told.items() if isinstance(told, dict) else ():
        with suppress(ValidationError):
            one = _Partition.model_validate(item)
            partition = Partition(template=one.template, number=one.number, vnpu=one.vnpu)
            found[name] = {"partition": partition, "chip_node": one.chip_node}
    return found


def _known_chips(told: Any) -> tuple[Chip, ...]:
    """The chips of one device; none where one of them is not understood."""
    try:
        return _chips().validate_python(_renamed(told, _snake))
    except ValidationError:
        return ()


def _age(data: bytes) -> str:
    """Say that a record is of a newer format, if it is."""
    try:
        version = _Format.model_validate_json(data).version
    except ValidationError:
        return ""
    is_newer = version > FORMAT
    return f"format {version} is of a newer driver, this one knows {FORMAT}: " if is_newer else ""


# --- writing -------------------------------------------------------------------------------------


def encode(entry: Entry) -> bytes:
    """The file's content, with all that is not known of what was read."""
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
    wire.pop("doubted", None)
    if entry.doubted:
        wire["doubted"] = True
    return to_json(wire, inf_nan_mode="null") + b"\n"


def checked(entry: Entry) -> bytes:
    """The same, after a look whether it can be read back.

    What is noted later of a claim that is served makes its record grow: steps, ids of vNPUs, a
    newer host's files. So a record that says that a claim is being undone may be larger: a claim
    that was given something can be unprepared.

    Raises:
        RecordRefused: It could not be read back.
    """
    data = encode(entry)
    limit = storage.SIZE_LIMIT if entry.state is EntryState.UNDOING else _MOST
    if len(data) > limit:
        raise RecordRefused(
            f"{entry.holder.titled} is too large to be noted on the node: its record would have "
            f"{len(data)} bytes, at most {limit} are read back, and {_largest_part(entry)}"
        )
    try:
        parse(data, uid=entry.uid)
    except RecordCorrupt as error:
        raise RecordRefused(
            f"what the node notes of {entry.holder.titled} could not be read back ({error})"
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
    return f"{edits} of them are what its containers get"


def with_devices(
    entry: Entry, devices: tuple[HeldDevice, ...], edits: Mapping[str, Any] | None
) -> Entry:
    """The entry with facts of its devices that were found out anew."""
    found = {"devices", "chips", "pieces"}
    stored = {key: value for key, value in entry.stored.items() if key not in found}
    return replace(entry, devices=devices, edits=edits, stored=stored)


def _whole(entry: Entry) -> dict[str, Any]:
    """All that this version knows."""
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
                **_told_config(given.config),
            }
            for given in entry.allocation
        ],
        "chips": {device.device: _told(device.chips) for device in entry.devices},
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


def _told_config(config: EffectiveConfig | None) -> dict[str, Any]:
    if config is None or config == DEFAULT_CONFIG:
        return {}
    told = _Config(**asdict(config) | {"env": dict(config.env)})
    # An older version understands it as long as nothing is said that it does not know.
    return {"config": told.model_dump(by_alias=True, exclude_defaults=True)}


@lru_cache(maxsize=64)
def _told(chips: tuple[Chip, ...]) -> Any:
    """All facts that are known, but how the chips are for the moment; not to be changed."""
    facts = _chips().dump_python(
        chips, mode="json", exclude={"__all__": {"health", "unlisted"}}, exclude_none=True
    )
    return _renamed(facts, _camel)


@cache
def _chips() -> TypeAdapter[tuple[Chip, ...]]:
    return TypeAdapter(tuple[Chip, ...])


_camel = cache(to_camel)  # which costs more than all else of a record; there are few names
_snake = lru_cache(1000)(to_snake)  # of names that a file may have


def _renamed(value: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {rename(key): _renamed(item, rename) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, rename) for item in value]
    return value
