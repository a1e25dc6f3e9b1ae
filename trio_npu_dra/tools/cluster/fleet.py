"""The devices of the cluster by node: what they are, their holders, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.offers import LEAVING, OfferKind
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.base.errors import DriverError
from trio_npu_dra.tools.cluster.inventory import (
    Allotment,
    ClusterView,
    DeviceId,
    PlacedDevice,
    PoolId,
    Taken,
    addresses,
    allotments,
    taken,
)
from trio_npu_dra.tools.cluster.objects import BLOCKING, AnyDevice, taint_words
from trio_npu_dra.tools.cluster.pools import NodePool, whole_pools
from trio_npu_dra.tools.cluster.said import Said

_PARTITION: Final = re.compile(r"npu-\d+-.")
"""The names of partitions, for those of which nothing else is known any more."""
_EVENTS: Final = 10
"""Events of a device that are shown."""


class DeviceState(StrEnum):
    """How a device is to a claim that comes now."""

    FREE = "free"
    USED = "used"
    SHARED = "shared"
    """Some of its shares, or some partitions of it, are in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device.

    Attributes:
        id: Its name.
        device: What is published of it; nothing but its name if it is held and published no more.
        is_published: Whether it is in a slice.
        state: How it is.
        holders: Its holders; of an NPU also those of its partitions.
        addresses: Of its ports, while a claim has it whole.
    """

    id: DeviceId
    device: AnyDevice
    is_published: bool = True
    state: DeviceState
    holders: tuple[Allotment, ...]
    addresses: tuple[str, ...] = ()

    def attribute(self, name: str) -> str:
        """An attribute as text; `-` if the device has none of that name."""
        found = self.device.attributes.get(name)
        return "-" if found is None or found.value is None else str(found.value)

    @property
    def memory(self) -> str:
        """Its memory; for other drivers that of a capacity named so."""
        capacity = self.device.capacity
        found = capacity.get(fact_names.MEMORY) or capacity.get("memory")
        return found.value if found else "-"

    @property
    def model(self) -> str:
        """What it is; for other drivers the name of the product."""
        names = (fact_names.CHIP_NAME, fact_names.MODEL, fact_names.PRODUCT_NAME, fact_names.TYPE)
        return next((word for name in names if (word := self.attribute(name)) != "-"), "-")

    @property
    def taints(self) -> tuple[str, ...]:
        """All its taints as text."""
        return tuple(map(taint_words, self.device.taints))

    @property
    def is_barred(self) -> bool:
        """Whether a taint keeps claims away; it may be in use too."""
        return any(taint.effect in BLOCKING for taint in self.device.taints)

    @property
    def is_unhealthy(self) -> bool:
        """Whether such a taint says more than that the device is to go elsewhere."""
        leaving = f"{self.id.driver}/{LEAVING}"
        return any(
            taint.effect in BLOCKING and taint.key != leaving for taint in self.device.taints
        )

    @property
    def is_free(self) -> bool:
        """Whether a claim can have all of it."""
        return self.state is DeviceState.FREE and not self.is_barred

    @property
    def is_partition(self) -> bool:
        """Whether it is a partition of another device."""
        if not self.is_published:
            return _PARTITION.match(self.id.name) is not None
        return self.attribute(fact_names.TYPE) == OfferKind.VNPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The devices with one value of `topologyGroup`.

    Attributes:
        name: `ring-0`.
        size: How many devices it has.
        free: How many of them are free.
        may_lack: Whether an NPU of the node is held and not published: it may be of this ring.
    """

    name: str
    size: int
    free: int
    may_lack: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether a claim can have all of it."""
        return self.free == self.size and not self.may_lack


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """The devices of one node.

    Attributes:
        node: Its name; that of the pool for devices that are not of one node.
        devices: Without partitions that could be made and are not; with those that claims hold
            though they are published no more.
        rings: What claims can have together.
        flaws: Why nothing is allocated from pools of these devices, in the scheduler's eyes.
    """

    node: str
    devices: tuple[DeviceRow, ...]
    rings: tuple[Ring, ...]
    flaws: tuple[Said, ...]

    @property
    def whole(self) -> tuple[DeviceRow, ...]:
        """The devices that are no partitions."""
        return tuple(row for row in self.devices if not row.is_partition)

    @property
    def free(self) -> int:
        """How many devices a claim can have."""
        return sum(row.is_free for row in self.whole)

    @property
    def used(self) -> int:
        """How many are in use, wholly or in part."""
        return sum(row.state is not DeviceState.FREE for row in self.whole)

    @property
    def unhealthy(self) -> int:
        """How many keep claims away."""
        return sum(row.is_unhealthy for row in self.whole)


def fleet(view: ClusterView, driver: str) -> tuple[NodeRow, ...]:
    """The nodes and their devices of a driver, of all drivers if it is empty."""
    held, reached = allotments(view.claims), addresses(view.claims)
    in_use = taken(held)
    nodes: dict[str, list[DeviceRow]] = {}
    flaws: dict[str, dict[Said, None]] = {}
    places: dict[PoolId, str] = {}
    withdrawn = {id_: None for id_ in held if in_use.has(id_) and driver in {"", id_.driver}}
    for pool in whole_pools(view.slices).values():
        if driver and pool.id.driver != driver:
            continue
        for placed in pool.devices:
            withdrawn.pop(placed.id, None)
            row = _row(placed, pool, held, in_use)
            spec = placed.slice.spec
            node = spec.node_name or placed.device.node_name or f"pool {pool.id.name}"
            places[pool.id] = node
            if row.is_partition and not row.holders:
                continue
            row = replace(row, addresses=reached.get(placed.id, ()))
            nodes.setdefault(node, []).append(row)
            if problem := pool.problem:
                flaws.setdefault(node, {})[problem] = None
    for id_ in withdrawn:
        node = places.get(PoolId(id_.driver, id_.pool), id_.pool)  # drivers name pools so, mostly
        row = DeviceRow(
            id=id_,
            device=AnyDevice(name=id_.name),
            is_published=False,
            state=DeviceState.USED,
            holders=held[id_],
            addresses=reached.get(id_, ()),
        )
        nodes.setdefault(node, []).append(row)
    return tuple(
        NodeRow(
            node=node,
            devices=tuple(rows),
            rings=tuple(_rings(rows)),
            flaws=tuple(flaws.get(node, ())),
        )
        for node, rows in sorted(nodes.items())
    )


def _row(
    placed: PlacedDevice,
    pool: NodePool,
    held: Mapping[DeviceId, Sequence[Allotment]],
    in_use: Taken,
) -> DeviceRow:
    takers = () if in_use.has(placed.id) else pool.takers(placed, in_use)
    state = DeviceState.FREE
    if placed.id in in_use.whole:
        state = DeviceState.USED
    elif placed.id in in_use.shared or takers:
        state = DeviceState.SHARED
    row = DeviceRow(
        id=placed.id,
        device=placed.device,
        state=state,
        holders=tuple(held.get(placed.id, ())),
    )
    if row.is_partition:  # what keeps it away is another device, which has a row of its own
        return row
    of_partitions = (one for other in takers for one in held.get(other.id, ()))
    return replace(row, holders=(*row.holders, *of_partitions))


def _rings(rows: Iterable[DeviceRow]) -> Iterator[Ring]:
    rows = tuple(rows)
    may_lack = any(not row.is_published and not row.is_partition for row in rows)
    members: dict[str, list[DeviceRow]] = {}
    for row in rows:
        if not row.is_partition and row.attribute(fact_names.TOPOLOGY_GROUP) != "-":
            members.setdefault(row.attribute(fact_names.TOPOLOGY_GROUP), []).append(row)
    for name, found in sorted(members.items()):
        free = sum(row.is_free for row in found)
        yield Ring(name=name, size=len(found), free=free, may_lack=may_lack)


# --- what is wrong with one device ---------------------------------------------------------------


class NoSuchDevice(DriverError):
    """No device, or more than one, has the name that a person gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is wrong with one device.

    Attributes:
        node: Where it is.
        row: The device.
        events: The node's Events about the device, the newest last.
        doubts: What may not be read.
    """

    node: str
    row: DeviceRow
    events: tuple[Event, ...]
    doubts: tuple[Said, ...]


def find(nodes: Sequence[NodeRow], words: str) -> tuple[str, DeviceRow]:
    """The device of that name, `npu-3` or `n1/npu-3`, and its node.

    Raises:
        NoSuchDevice: None or several have it; the message says what to do.
    """
    place, _, name = words.rpartition("/")
    found = [
        (node.node, row)
        for node in nodes
        for row in node.devices
        if row.device.name == name and place in {"", node.node}
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NoSuchDevice(
            f"no device {words} is published, and no partition of that name is held: "
            "`kubectl npu -o wide` lists them"
        )
    places = ", ".join(f"{node}/{name}" for node, _ in found[:5])
    raise NoSuchDevice(f"{len(found)} nodes have a device {name}; say which: {places}")


def diagnosis(
    node: str, row: DeviceRow, events: Iterable[Event], doubts: tuple[Said, ...]
) -> Diagnosis:
    """What is wrong with a device, given all Events of its node."""
    name = row.device.name
    about = [
        event for event in events if name in (word.strip(":;,.") for word in event.message.split())
    ]
    about.sort(key=lambda event: event.when)
    return Diagnosis(node=node, row=row, events=tuple(about[-_EVENTS:]), doubts=doubts)
