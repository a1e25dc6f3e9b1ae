"""Which devices, and what of them, a node can have: pools and shares by the scheduler's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from trio_npu_dra.kit.api.objects import CapacityPolicy, Device, DeviceCapacity, FullNode
from trio_npu_dra.kit.api.quantity import canonical_quantity, parse_quantity
from trio_npu_dra.tools.cluster.inventory import (
    PlacedDevice,
    PoolId,
    Taken,
    devices_of,
    newest,
    pool_of,
)
from trio_npu_dra.tools.cluster.objects import AnyDevice, AnySlice, AnySliceSpec, selects
from trio_npu_dra.tools.cluster.said import Flaw, Said

_COUNTERS_EVERYWHERE = 36
CounterKey = tuple[str, str]
"""A counter set and a counter in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A pool as one node sees it.

    Attributes:
        id: Its name.
        devices: Those that the node can have, in the scheduler's order.
        others: Those of the pool that only other nodes can have.
        counters: What the counter sets have in all.
        flaw: Why nothing is allocated from it; None if nothing is wrong.
    """

    id: PoolId
    devices: tuple[PlacedDevice, ...] = ()
    others: tuple[PlacedDevice, ...] = ()
    counters: Mapping[CounterKey, Fraction]
    flaw: Said | None = None

    @property
    def problem(self) -> Said | None:
        """The flaw with the pool's name: `of pool n1 of npu.huawei.com only 1 of its 2 ...`."""
        flaw = self.flaw
        return flaw and flaw.within(f"of pool {self.id.name} of {self.id.driver} {flaw}")

    def left(self, taken: Taken) -> dict[CounterKey, Fraction]:
        """What is left of each counter."""
        left = dict(self.counters)
        for placed in (*self.devices, *self.others):
            if taken.has(placed.id):
                for key, amount in consumed(placed.device):
                    left[key] = left.get(key, Fraction(0)) - amount
        return left

    def takers(self, placed: PlacedDevice, taken: Taken) -> tuple[PlacedDevice, ...]:
        """The devices that use the counters which one more such device needs.

        None if enough is left; a held device counts itself.
        """
        if not placed.device.consumes_counters:
            return ()
        left = self.left(taken)
        for key, amount in consumed(placed.device):
            left[key] = left.get(key, Fraction(0)) - amount
        sets = {set_ for (set_, _), amount in left.items() if amount < 0}
        return tuple(
            other
            for other in (*self.devices, *self.others)
            if taken.has(other.id) and any(set_ in sets for (set_, _), _ in consumed(other.device))
        )


def consumed(device: AnyDevice) -> Iterable[tuple[CounterKey, Fraction]]:
    """What a device takes from counters."""
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            yield (consumption.counter_set, name), parse_quantity(counter.value)


def pools_by_node(
    nodes: Sequence[FullNode], slices: Sequence[AnySlice], *, minor: int | None = None
) -> dict[str, tuple[NodePool, ...]]:
    """The pools that each node sees, in the scheduler's order, by its name.

    Those whose devices have binding conditions come last. A node is held against the slices that
    name it, and those that name no node: a cluster has thousands of both.

    Args:
        nodes: The nodes.
        slices: All there are.
        minor: The N of Kubernetes 1.N: up to 1.36 all nodes see all slices with counters, so that
            a pool of another node which is not complete stops requests for all devices.
    """
    sees_counters = minor is not None and minor <= _COUNTERS_EVERYWHERE
    everywhere: dict[PoolId, list[AnySlice]] = {}
    of_node: dict[str, set[PoolId]] = {}
    of_many: set[PoolId] = set()
    for slice_ in slices:
        id_, spec = pool_of(slice_), slice_.spec
        everywhere.setdefault(id_, []).append(slice_)
        if spec.node_name and not (sees_counters and spec.shared_counters):
            of_node.setdefault(spec.node_name, set()).add(id_)
        else:
            of_many.add(id_)
    seen: dict[str, tuple[NodePool, ...]] = {}
    for node in nodes:
        found = []
        for id_ in sorted(of_many | of_node.get(node.metadata.name, set())):
            near = [
                slice_
                for slice_ in everywhere[id_]
                if (sees_counters and slice_.spec.shared_counters) or _is_near(slice_.spec, node)
            ]
            pool = _pool(id_, near, everywhere[id_], node) if near else None
            if pool is not None:
                found.append(pool)
        found.sort(key=lambda pool: any(one.device.binding_conditions for one in pool.devices))
        seen[node.metadata.name] = tuple(found)
    return seen


def whole_pools(slices: Sequence[AnySlice]) -> Mapping[PoolId, NodePool]:
    """The newest generation of each pool with all devices, whatever node may have them."""
    pools = {}
    for id_, found in newest(slices).items():
        pool = _built(found, found, None)
        pools[id_] = replace(pool, flaw=_missing(found) or pool.flaw)
    return pools


def _is_near(spec: AnySliceSpec, node: FullNode) -> bool:
    if spec.per_device_node_selection:
        return any(_is_for(device, node) for device in spec.devices)
    return _is_for(spec, node)


def _is_for(place: AnySliceSpec | AnyDevice, node: FullNode) -> bool:
    if place.node_name:
        return place.node_name == node.metadata.name
    if place.all_nodes:
        return True
    return place.node_selector is not None and selects(place.node_selector, node)


def _pool(
    id_: PoolId, near: list[AnySlice], all_of_it: list[AnySlice], node: FullNode
) -> NodePool | None:
    """The newest generation that the node sees; None if only other nodes see a newer one."""
    generation = max(slice_.spec.pool.generation for slice_ in near)
    near = _of(near, generation)
    known = near
    if _missing(near):
        if any(slice_.spec.pool.generation > generation for slice_ in all_of_it):
            return None
        known = _of(all_of_it, generation)
    if flaw := _missing(known):
        return NodePool(id=id_, counters={}, flaw=flaw)
    return _built(near, known, node)


def _missing(slices: Sequence[AnySlice]) -> Said | None:
    """What one generation of a pool lacks."""
    wanted = slices[0].spec.pool.resource_slice_count
    if len(slices) == wanted:
        return None
    driver, pool = pool_of(slices[0])
    return Said(
        f"only {len(slices)} of its {wanted} slices are published",
        Flaw.POOL_INCOMPLETE,
        driver=driver,
        pool=pool,
        slices=len(slices),
        wanted=wanted,
    )


def _of(slices: Iterable[AnySlice], generation: int) -> list[AnySlice]:
    found = (slice_ for slice_ in slices if slice_.spec.pool.generation == generation)
    return sorted(found, key=lambda slice_: slice_.metadata.name)


def _built(near: Sequence[AnySlice], known: Sequence[AnySlice], node: FullNode | None) -> NodePool:
    """The pool of the slices that a node sees, and of all others that are known."""
    id_, names = pool_of(known[0]), {slice_.metadata.name for slice_ in near}
    devices = devices_of(near)
    others = devices_of(slice_ for slice_ in known if slice_.metadata.name not in names)
    sets = [one for slice_ in known for one in slice_.spec.shared_counters]
    counters = {
        (set_.name, name): parse_quantity(counter.value)
        for set_ in sets
        for name, counter in set_.counters.items()
    }
    flaw = _flaw(id_, devices, others, counters, [set_.name for set_ in sets])
    mine = tuple(
        placed
        for placed in devices
        if node is None
        or not placed.slice.spec.per_device_node_selection
        or _is_for(placed.device, node)
    )
    here = {placed.id for placed in mine}
    rest = (placed for placed in devices if placed.id not in here)
    return NodePool(id=id_, devices=mine, others=(*rest, *others), counters=counters, flaw=flaw)


def _flaw(
    id_: PoolId,
    devices: Sequence[PlacedDevice],
    others: Sequence[PlacedDevice],
    counters: Mapping[CounterKey, Fraction],
    sets: Sequence[str],
) -> Said | None:
    """What makes a pool invalid, in the scheduler's eyes."""
    where = {"driver": id_.driver, "pool": id_.name}
    names = Counter(placed.device.name for placed in devices)
    if names and max(names.values()) > 1:
        device = names.most_common(1)[0][0]
        text = f"several devices have the name {device}"
        return Said(text, Flaw.SAME_NAME, **where, device=device)
    if len(set(sets)) < len(sets):
        return Said("several counter sets have one name", Flaw.SAME_SET, **where)
    for placed in (*devices, *others):
        for (set_, name), _ in consumed(placed.device):
            if (set_, name) not in counters:
                return Said(
                    f"{placed.device.name} takes from {set_}/{name}, a counter that is not there",
                    Flaw.NO_COUNTER,
                    **where,
                    device=placed.device.name,
                    counterSet=set_,
                    counter=name,
                )
    return None


# --- what an allocation takes of a device's capacities, by the policies of its owner -------------


def share_of(device: Device, requests: Mapping[str, str]) -> dict[str, Fraction] | None:
    """What is taken of each capacity.

    Returns:
        None if the device lacks a capacity that is asked for, or a policy forbids the amount.
    """
    if not set(requests) <= set(device.capacity):
        return None
    found = {}
    for name, capacity in device.capacity.items():
        amount = _amount(requests.get(name), capacity)
        if not _is_allowed(amount, capacity.request_policy):
            return None
        found[name] = amount
    return found


def fits(device: Device, share: Mapping[str, Fraction], in_use: Mapping[str, Fraction]) -> bool:
    """Whether a share fits beside what is in use."""
    nothing = Fraction(0)
    return all(
        share[name] + in_use.get(name, nothing) <= parse_quantity(capacity.value)
        for name, capacity in device.capacity.items()
    )


def _amount(asked: str | None, capacity: DeviceCapacity) -> Fraction:
    policy = capacity.request_policy
    if asked is None:
        default = policy.default if policy else None
        return parse_quantity(default if default is not None else capacity.value)
    amount = parse_quantity(asked)
    if policy is None:
        return amount
    bounds = policy.valid_range
    if bounds is not None and bounds.min is not None:
        least = parse_quantity(bounds.min or "0")
        if amount < least or bounds.step is None:
            return max(amount, least)
        step = parse_quantity(bounds.step)
        return least + ceil((amount - least) / step) * step
    larger = (parse_quantity(value) for value in policy.valid_values or ())
    return next((value for value in larger if amount <= value), amount)


def _is_allowed(amount: Fraction, policy: CapacityPolicy | None) -> bool:
    if policy is None or (policy.default and amount == parse_quantity(policy.default)):
        return True
    if policy.valid_range is not None:
        bounds = policy.valid_range
        if bounds.max is not None and amount > parse_quantity(bounds.max):
            return False
        if bounds.step is None:
            return True
        return (amount - parse_quantity(bounds.min or "0")) % parse_quantity(bounds.step) == 0
    if policy.valid_values:
        return amount in {parse_quantity(value) for value in policy.valid_values}
    return True


def quantity_words(amount: Fraction) -> str:
    """An amount for people: the largest binary suffix that divides it, else a plain number."""
    if amount.denominator != 1:
        return f"{float(amount):g}"
    whole = int(amount)
    return canonical_quantity(whole) if whole % 1024 == 0 else str(whole)
