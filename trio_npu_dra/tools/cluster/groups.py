"""Nodes of one group whose devices differ, although autoscalers take them for equal; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from trio_npu_dra.agent.devices.node_kind import JOINING, joined, of_kind, unjoined
from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.tools.cluster.matching import BLOCKING
from trio_npu_dra.tools.cluster.objects import AnyDevice, AnySlice
from trio_npu_dra.tools.cluster.pools import CounterKey, NodePool, consumed, whole_pools
from trio_npu_dra.tools.cluster.said import Difference, Said, few


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node of a group.

    Attributes:
        node: Its name.
        differences: From what most nodes of the group publish, and its flaws and taints.
    """

    node: str
    differences: tuple[Said, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """The nodes with one value of a label, of which one at least has devices.

    Attributes:
        name: The value.
        members: By name.
    """

    name: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """What a node publishes, without what is its own.

    Attributes:
        devices: By name.
        counters: What its counter sets have.
        flaws: Why nothing is allocated from it.
        tainted: Names of devices that no claim gets.
    """

    devices: Mapping[str, AnyDevice] = field(default_factory=dict)
    counters: Mapping[CounterKey, Fraction] = field(default_factory=dict)
    flaws: tuple[Said, ...] = ()
    tainted: tuple[str, ...] = ()


def groups(
    nodes: Iterable[FullNode], slices: Iterable[AnySlice], *, label: str, driver: str
) -> tuple[NodeGroup, ...]:
    """The groups by the values of *label*, without those that have no devices of *driver*."""
    pools = {
        placed.slice.spec.node_name: pool
        for pool in whole_pools(tuple(slices)).values()
        if pool.id.driver == driver
        for placed in pool.devices
    }
    found: dict[str, dict[str, _Published]] = {}
    for node in sorted(nodes, key=lambda one: one.metadata.name):
        if (value := node.metadata.labels.get(label)) is not None:
            name = node.metadata.name
            found.setdefault(value, {})[name] = _published(pools.get(name))
    return tuple(
        NodeGroup(name=value, members=tuple(_members(members)))
        for value, members in sorted(found.items())
        if any(one.devices for one in members.values())
    )


def _published(pool: NodePool | None) -> _Published:
    if pool is None:
        return _Published()
    devices = [placed.device for placed in pool.devices]
    return _Published(
        devices={device.name: of_kind(device) for device in devices},
        counters=pool.counters,
        flaws=(pool.problem,) if pool.problem else (),
        tainted=tuple(
            device.name
            for device in devices
            if any(taint.effect in BLOCKING for taint in device.taints)
        ),
    )


def _members(of_nodes: Mapping[str, _Published]) -> Iterator[Member]:
    usual = _usual(one for one in of_nodes.values() if one.devices and not one.flaws)
    for node, one in of_nodes.items():
        differences = list(one.flaws or _differences(usual, one))
        if one.tainted:
            text = f"has taints on {few(one.tainted)}"
            differences.append(Said(text, Difference.TAINTED, devices=one.tainted))
        yield Member(node=node, differences=tuple(differences))


def _usual(published: Iterable[_Published]) -> _Published:
    """What most nodes publish; of equally many the first."""
    counts: list[tuple[_Published, int]] = []
    for one in published:
        for at, (known, count) in enumerate(counts):
            if not any(_differences(known, one)):
                counts[at] = known, count + 1
                break
        else:
            counts.append((one, 1))
    return max(counts, key=lambda counted: counted[1], default=(_Published(), 0))[0]


def _differences(usual: _Published, own: _Published) -> Iterator[Said]:
    """What *own* has otherwise than *usual*."""
    lacks = [name for name in usual.devices if name not in own.devices]
    adds = [name for name in own.devices if name not in usual.devices]
    if lacks:
        yield Said(f"lacks {few(lacks)}", Difference.LACKS, devices=lacks)
    if adds:
        yield Said(f"has {few(adds)} besides", Difference.ADDS, devices=adds)
    both = [name for name in usual.devices if name in own.devices]
    changed: dict[tuple[str, str | None, str | None], list[str]] = {}
    for name in both:
        most, one = _facts(usual.devices[name]), _facts(own.devices[name])
        for fact in sorted(most.keys() | one.keys()):
            if most.get(fact) != one.get(fact):
                changed.setdefault((fact, one.get(fact), most.get(fact)), []).append(name)
    for (fact, value, of_most), names in changed.items():
        text = f"{few(names)}: {fact} is {value or 'missing'}, not {of_most or 'missing'}"
        facts = {"devices": names, "fact": fact, "value": value, "usual": of_most}
        yield Said(text, Difference.FACT, **facts)
    groups_of_most, groups_here = (
        joined(each.devices[name] for name in both) for each in (usual, own)
    )
    for name in JOINING:
        if groups_of_most.get(name) != groups_here.get(name):
            yield Said(f"{name} joins other devices", Difference.JOINED, attribute=name)
    sets = {set_ for (set_, _), _ in usual.counters.items() ^ own.counters.items()}
    if other := sorted(sets - {*lacks, *adds}):
        text = f"has other amounts in the counter sets {few(other)}"
        yield Said(text, Difference.COUNTERS, counterSets=other)


def _facts(device: AnyDevice) -> Mapping[str, str]:
    """What is compared of a device, by name."""
    return {
        **{name: str(one.value) for name, one in unjoined(device).attributes.items()},
        **{name: one.value for name, one in device.capacity.items()},
        **{f"counter {name}": str(amount) for (_, name), amount in consumed(device)},
    }
