"""Pools, stored slices and an API server in a few lines, for tests of the plan."""

from typing import Any

from trio_npu_dra.kit.api.objects import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceTaint,
    ObjectMeta,
    OwnerReference,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from trio_npu_dra.kit.pool import Pool, plan
from trio_npu_dra.kit.pool.diff import Write
from trio_npu_dra.kit.pool.pool import DEVICES_PER_SLICE
from trio_npu_dra.kit.pool.stored_forms import StoredForms

OWNER = OwnerReference(api_version="v1", kind="Node", name="n", uid="u-1", controller=True)
LATER = "2026-01-01T00:01:00Z"
"""When the server says that a taint without a time was added."""
Devices = tuple[Device, ...]
Slices = tuple[ResourceSlice, ...]


def devices(count: int, *, model: str = "A") -> Devices:
    """Devices `d0`, `d1`..."""
    attributes = {"model": DeviceAttribute(string=model)}
    return tuple(Device(name=f"d{number}", attributes=attributes) for number in range(count))


def block(number: int, *, model: str = "A") -> Devices:
    """The devices that fill slice *number* of a pool."""
    return devices((number + 1) * DEVICES_PER_SLICE, model=model)[number * DEVICES_PER_SLICE :]


def counter_sets(count: int, *, amount: str = "20") -> tuple[CounterSet, ...]:
    """Counter sets `s0`, `s1`..."""
    return tuple(
        CounterSet(name=f"s{number}", counters={"ai-cores": Counter(value=amount)})
        for number in range(count)
    )


def pool(*content: Device, counters: tuple[CounterSet, ...] = ()) -> Pool:
    """The wanted pool."""
    return Pool(
        driver="d.io",
        node_name="n",
        owner=OWNER,
        devices=content,
        shared_counters=counters,
    )


def taint(value: str = "major", *, time: str | None = None) -> DeviceTaint:
    """A taint."""
    return DeviceTaint(key="d.io/fault", value=value, effect="NoSchedule", time_added=time)


def tainted(device: Device, *taints: DeviceTaint) -> Device:
    """A device with taints."""
    return device.model_copy(update={"taints": taints})


def spec(
    *content: Device,
    generation: int = 1,
    count: int = 1,
    counters: tuple[CounterSet, ...] = (),
    pool_name: str = "n",
) -> ResourceSliceSpec:
    """A slice's spec."""
    return ResourceSliceSpec(
        driver="d.io",
        node_name="n",
        pool=ResourcePool(name=pool_name, generation=generation, resource_slice_count=count),
        devices=content,
        shared_counters=counters,
    )


def stored(
    name: str, *content: Device, generation: int = 1, count: int = 1, pool_name: str = "n"
) -> ResourceSlice:
    """A slice as the API server has it."""
    return ResourceSlice(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", resource_version="7", owner_references=(OWNER,)
        ),
        spec=spec(*content, generation=generation, count=count, pool_name=pool_name),
    )


def numbered(index: int, *content: Device, generation: int = 1, count: int = 1) -> ResourceSlice:
    """A slice as the API server has it, under our name for that index."""
    return stored(f"n-d.io-{index:05x}-a", *content, generation=generation, count=count)


def apply(
    slices: Slices,
    writes: tuple[Write, ...],
    forms: StoredForms | None = None,
    drops: frozenset[str] = frozenset(),
) -> Slices:
    """The API server after the writes.

    Args:
        slices: What it had.
        writes: In their order.
        forms: Learns what the server made of them.
        drops: Fields of the spec and of devices that the server does not have.
    """
    after = {item.metadata.name: item for item in slices}
    for number, write in enumerate(writes):
        meta = write.slice.metadata
        if write.verb == "delete":
            del after[meta.name]
            continue
        if write.verb == "update":
            assert meta.name in after
        else:
            name = f"{meta.generate_name}x{number}"
            meta = meta.model_copy(
                update={"name": name, "uid": f"uid-{name}", "resource_version": "1"}
            )
        made = ResourceSlice(metadata=meta, spec=_kept(write.slice.spec, drops))
        after[meta.name] = made
        if forms is not None:
            forms.learn(write.slice.spec, made.spec)
    return tuple(after[name] for name in sorted(after))


def published(content: Pool) -> Slices:
    """The slices of a pool in an empty cluster."""
    return apply((), plan((), content))


def kinds(writes: tuple[Write, ...]) -> list[str]:
    """The writes by verb, in order."""
    return [write.verb for write in writes]


def generations(slices: Slices) -> set[int]:
    """All generations."""
    return {item.spec.pool.generation for item in slices}


def _kept(sent: ResourceSliceSpec, drops: frozenset[str]) -> ResourceSliceSpec:
    wire: dict[str, Any] = sent.to_wire()
    for part in (wire, *wire.get("devices", ())):
        for field in drops:
            part.pop(field, None)
        for added in part.get("taints", ()):
            added.setdefault("timeAdded", LATER)
    return ResourceSliceSpec.model_validate(wire)
