"""Which writes turn the slices that exist into the pool that is wanted; pure.

The rules are those of the resource slice controller in k8s.io/dynamic-resource-allocation, so that
schedulers see what they see of other drivers: slices are matched by the index in their name; one
changed slice is updated in place; anything more gets a new generation on every slice, because a
reader takes a pool only when all slices of its newest generation are there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from trio_npu_dra.errors import Invalid
from trio_npu_dra.kube.objects import (
    Device,
    DeviceTaint,
    ObjectMeta,
    OwnerReference,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

DEVICES_PER_SLICE = 64
"""The API server's limit once one device has a taint; without any it would be 128."""

_NAME_BASE_LIMIT = 58
"""The API server cuts generateName here, and would cut the index away."""
_INDEX = re.compile(r"-([0-9a-f]{5})-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All devices of one driver on one node.

    Attributes:
        name: The pool's name.
        driver: The driver's name.
        node_name: The node that has the devices.
        owner: Whose end is the slices' end.
        devices: In the order in which schedulers shall prefer them.
    """

    name: str
    driver: str
    node_name: str
    owner: OwnerReference
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove this slice, given that it is still as read."""

    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class Update:
    """Replace a slice; its metadata has the version that was read."""

    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class Create:
    """Make a new slice."""

    slice: ResourceSlice


Write = Delete | Update | Create


def plan(existing: Iterable[ResourceSlice], desired: Pool) -> tuple[Write, ...]:
    """The writes that make *existing* the *desired* pool, in their order; none when it is.

    Args:
        existing: All slices of the driver on the node.
        desired: What shall be.

    Raises:
        Invalid: Two devices have one name.
    """
    _refuse_duplicates(desired.devices)
    found = sorted(existing, key=lambda item: item.metadata.name)
    chunks = _chunks(_with_known_times(desired.devices, found))
    newest = max((_generation(item, desired) for item in found), default=0)
    kept = _kept(found, desired, newest, len(chunks))
    wanted = _specs(desired, chunks, newest)
    changed = {index for index, item in kept.items() if _differs(item, wanted[index], desired)}
    if len(kept) < len(chunks) or len(changed) > 1:
        wanted = _specs(desired, chunks, newest + 1)
        changed = set(kept)
    obsolete = [item for item in found if item not in kept.values()]
    return (
        *(Delete(item) for item in obsolete),
        *(Update(_updated(kept[index], wanted[index], desired)) for index in sorted(changed)),
        *(
            Create(_created(index, spec, desired))
            for index, spec in enumerate(wanted)
            if index not in kept
        ),
    )


def generate_name(pool: Pool, index: int) -> str:
    """The generateName of a slice: `<node>-<driver>-<index>-`, the index in five hex digits.

    A long name loses its end, not its index: the API server keeps 58 characters.
    """
    prefix = f"{pool.node_name}-{pool.driver}"[: _NAME_BASE_LIMIT - len("-00000-")]
    return f"{prefix.rstrip('-.')}-{index:05x}-"


def index_in(name: str, pool: Pool) -> int | None:
    """The index in a slice's name; `None` when we did not name it."""
    prefix = generate_name(pool, 0).removesuffix("-00000-")
    found = _INDEX.match(name.removeprefix(prefix)) if name.startswith(prefix) else None
    return int(found[1], 16) if found else None


def _refuse_duplicates(devices: Sequence[Device]) -> None:
    seen: set[str] = set()
    for device in devices:
        if device.name in seen:
            raise Invalid(f"device {device.name} is twice in the pool")
        seen.add(device.name)


def _chunks(devices: tuple[Device, ...]) -> list[tuple[Device, ...]]:
    """At least one: an empty pool says that there is nothing, no pool says nothing."""
    starts = range(0, max(len(devices), 1), DEVICES_PER_SLICE)
    return [devices[start : start + DEVICES_PER_SLICE] for start in starts]


def _generation(item: ResourceSlice, desired: Pool) -> int:
    return item.spec.pool.generation if item.spec.pool.name == desired.name else 0


def _kept(
    found: Collection[ResourceSlice], desired: Pool, newest: int, count: int
) -> dict[int, ResourceSlice]:
    """The slices that stay, by index; of two with one index the first by name."""
    kept: dict[int, ResourceSlice] = {}
    for item in found:
        index = index_in(item.metadata.name, desired)
        is_ours = item.spec.pool.name == desired.name and item.spec.pool.generation == newest
        if is_ours and index is not None and index < count:
            kept.setdefault(index, item)
    return kept


def _specs(
    desired: Pool, chunks: Sequence[tuple[Device, ...]], generation: int
) -> list[ResourceSliceSpec]:
    pool = ResourcePool(name=desired.name, generation=generation, resource_slice_count=len(chunks))
    return [
        ResourceSliceSpec(
            driver=desired.driver, node_name=desired.node_name, pool=pool, devices=chunk or None
        )
        for chunk in chunks
    ]


def _differs(item: ResourceSlice, spec: ResourceSliceSpec, desired: Pool) -> bool:
    same_owner = item.metadata.owner_references == (desired.owner,)
    stored = item.spec.model_copy(update={"devices": item.spec.devices or None})
    return not same_owner or stored != spec


def _updated(item: ResourceSlice, spec: ResourceSliceSpec, desired: Pool) -> ResourceSlice:
    metadata = item.metadata.model_copy(update={"owner_references": (desired.owner,)})
    return ResourceSlice(metadata=metadata, spec=spec)


def _created(index: int, spec: ResourceSliceSpec, desired: Pool) -> ResourceSlice:
    metadata = ObjectMeta(
        generate_name=generate_name(desired, index), owner_references=(desired.owner,)
    )
    return ResourceSlice(metadata=metadata, spec=spec)


# --- taints --------------------------------------------------------------------------------------


def _with_known_times(
    devices: tuple[Device, ...], found: Iterable[ResourceSlice]
) -> tuple[Device, ...]:
    """A taint that is there already keeps the time at which it was added."""
    stored = {
        device.name: device
        for device in chain.from_iterable(item.spec.devices or () for item in found)
    }
    return tuple(_with_times_of(device, stored.get(device.name)) for device in devices)


def _with_times_of(device: Device, stored: Device | None) -> Device:
    if not device.taints or stored is None or not stored.taints:
        return device
    times = {_identity(taint): taint.time_added for taint in stored.taints}
    taints = tuple(_with_time(taint, times) for taint in device.taints)
    return device.model_copy(update={"taints": taints})


def _with_time(taint: DeviceTaint, times: Mapping[tuple[str, str, str], str | None]) -> DeviceTaint:
    known = times.get(_identity(taint))
    return taint.model_copy(update={"time_added": known}) if known else taint


def _identity(taint: DeviceTaint) -> tuple[str, str, str]:
    return taint.key, taint.value or "", taint.effect
