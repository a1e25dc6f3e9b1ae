"""Devices by pool, and their holders; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Final, NamedTuple

from trio_npu_dra.agent.devices.npu_status import NpuStatus
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import AllocationResult, DeviceStatus, FullNode, ObjectMeta
from trio_npu_dra.kit.api.parsing import NotUnderstood, convert
from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.tools.cluster.objects import (
    AnyDevice,
    AnySlice,
    Claim,
    DeviceClass,
    DeviceTaintRule,
    Pod,
)
from trio_npu_dra.tools.cluster.said import Said

NOT_EVICTED: Final = "no taint evicts the pod, because it asks by limits and names no claim"
"""Kubernetes 1.36.3: `device_taint_eviction.go` reads the claims of a pod's spec alone."""


class DeviceId(NamedTuple):
    """The name of a device in a cluster."""

    driver: str
    pool: str
    name: str


class PoolId(NamedTuple):
    """The name of a pool in a cluster."""

    driver: str
    name: str


@dataclass(frozen=True, slots=True)
class PlacedDevice:
    """A device and the slice that it is in."""

    id: DeviceId
    device: AnyDevice = field(repr=False, compare=False)
    slice: AnySlice = field(repr=False, compare=False)

    @property
    def pool(self) -> PoolId:
        """Its pool."""
        return PoolId(self.id.driver, self.id.pool)


@dataclass(frozen=True, slots=True)
class Allotment:
    """One device that one claim has.

    Attributes:
        claim: The claim.
        result: What was allocated.
        ending: Those of its pods that are being deleted, as far as pods were read.
    """

    claim: Claim
    result: AllocationResult
    ending: frozenset[str]

    @property
    def id(self) -> DeviceId:
        """The device."""
        return id_of(self.result)

    @property
    def is_ending(self) -> bool:
        """Whether it is to end anyway."""
        return self.claim.is_deleted or bool(self.ending)

    @property
    def users(self) -> tuple[str, ...]:
        """`pod train-0`, `PodGroup train`."""
        return (*(f"pod {name}" for name in self.claim.pods), *self.claim.pod_groups)

    @property
    def words(self) -> str:
        """`claim default/npu (pod train)`."""
        pods = self.claim.pods
        notes = [f"pod{'s' * (len(pods) > 1)} {', '.join(pods)}"] if pods else []
        notes += self.claim.pod_groups
        if self.result.admin_access:
            notes.append("admin access")
        if self.claim.is_deleted:
            notes.append("being deleted")
        return f"claim {self.claim.title}" + (f" ({'; '.join(notes)})" if notes else "")


def id_of(given: AllocationResult | DeviceStatus) -> DeviceId:
    """The device that a claim has."""
    return DeviceId(given.driver, given.pool, given.device)


def pool_of(slice_: AnySlice) -> PoolId:
    """The pool of a slice."""
    return PoolId(slice_.spec.driver, slice_.spec.pool.name)


def with_rules(
    slices: Iterable[AnySlice], rules: Sequence[DeviceTaintRule]
) -> tuple[AnySlice, ...]:
    """The slices as the scheduler has them: devices have the taints of rules beside their own."""
    return tuple(_with_rules(slice_, rules) for slice_ in slices)


def _with_rules(slice_: AnySlice, rules: Sequence[DeviceTaintRule]) -> AnySlice:
    pool = pool_of(slice_)
    taints = [
        (selector.device, rule.spec.taint)
        for rule in rules
        if (selector := rule.spec.device_selector) is not None
        and selector.driver in {None, pool.driver}
        and selector.pool in {None, pool.name}
    ]
    if not taints:
        return slice_
    devices = []
    for device in slice_.spec.devices:
        added = [taint for name, taint in taints if name in {None, device.name}]
        devices.append(device.model_copy(update={"taints": (*device.taints, *added)}))
    spec = slice_.spec.model_copy(update={"devices": tuple(devices)})
    return slice_.model_copy(update={"spec": spec})


def newest(slices: Iterable[AnySlice]) -> Mapping[PoolId, tuple[AnySlice, ...]]:
    """The slices of each pool's newest generation, by their names."""
    pools: dict[PoolId, list[AnySlice]] = {}
    for slice_ in sorted(slices, key=lambda one: one.metadata.name):
        found = pools.setdefault(pool_of(slice_), [])
        if found and slice_.spec.pool.generation > found[0].spec.pool.generation:
            found.clear()
        if not found or slice_.spec.pool.generation == found[0].spec.pool.generation:
            found.append(slice_)
    return {name: tuple(found) for name, found in sorted(pools.items())}


def devices_of(slices: Iterable[AnySlice]) -> tuple[PlacedDevice, ...]:
    """The devices of slices, in their order."""
    return tuple(
        PlacedDevice(DeviceId(*pool_of(slice_), device.name), device, slice_)
        for slice_ in slices
        for device in slice_.spec.devices
    )


def allotments(
    claims: Iterable[Claim], pods: Iterable[Pod] = ()
) -> Mapping[DeviceId, tuple[Allotment, ...]]:
    """The claims on each device, also those with admin access; *pods* tell which pods end."""
    ending = {pod.title for pod in pods if pod.metadata.deletion_timestamp}
    found: dict[DeviceId, list[Allotment]] = {}
    for claim in claims:
        if (allocation := claim.status.allocation) is None:
            continue
        here = frozenset(
            name for name in claim.pods if f"{claim.metadata.namespace}/{name}" in ending
        )
        for result in allocation.devices.results:
            held = Allotment(claim, result, here)
            found.setdefault(held.id, []).append(held)
    return {device: tuple(held) for device, held in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What no other claim can get.

    Attributes:
        whole: Devices that one claim has for itself.
        shared: Devices of which claims have shares, with the sum of each capacity.
    """

    whole: frozenset[DeviceId]
    shared: Mapping[DeviceId, Mapping[str, Fraction]]

    def has(self, device: DeviceId) -> bool:
        """Whether anything of it is taken."""
        return device in self.whole or device in self.shared


def addresses(claims: Iterable[Claim]) -> Mapping[DeviceId, tuple[str, ...]]:
    """The addresses that devices of claims have by the claims' status, without networks."""
    found: dict[DeviceId, tuple[str, ...]] = {}
    for claim in claims:
        for one in claim.status.devices:
            networks = [one.network_data]
            with suppress(NotUnderstood):  # of another driver
                networks += [die.network_data for die in convert(NpuStatus, one.data).module_dies]
            ips = [ip.partition("/")[0] for network in networks if network for ip in network.ips]
            found[id_of(one)] = tuple(ips)
    return found


def taken(held: Mapping[DeviceId, tuple[Allotment, ...]]) -> Taken:
    """What these claims take; admin access takes nothing."""
    whole: set[DeviceId] = set()
    shared: dict[DeviceId, dict[str, Fraction]] = {}
    for device, all_of_it in held.items():
        for holding in all_of_it:
            result = holding.result
            if result.admin_access:
                continue
            if result.share_id is None:
                whole.add(device)
                continue
            sums = shared.setdefault(device, {})
            for name, amount in result.consumed_capacity.items():
                sums[name] = sums.get(name, Fraction(0)) + parse_quantity(amount)
    return Taken(whole=frozenset(whole), shared=MappingProxyType(shared))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What the API server has.

    Attributes:
        slices: Of all drivers, with the taints of DeviceTaintRules.
        claims: Of all namespaces.
        classes: DeviceClasses by name.
        nodes: Nodes; None if we may not read them.
        pods: Pods that have not ended; None if we have not asked or may not.
        events: About the explained object.
        doubts: What was not read, and so is not weighed.
        admin_access_allowed: Whether claims in the namespace of the explained object may have
            admin access; None if no claim there wants it, or we may not read the namespace.
        minor: The N of Kubernetes 1.N; None if unknown, judged as 1.37.
    """

    slices: tuple[AnySlice, ...] = ()
    claims: tuple[Claim, ...] = ()
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    nodes: tuple[FullNode, ...] | None = None
    pods: tuple[Pod, ...] | None = None
    events: tuple[Event, ...] = ()
    doubts: tuple[Said, ...] = ()
    admin_access_allowed: bool | None = None
    minor: int | None = None

    @property
    def known_nodes(self) -> tuple[FullNode, ...]:
        """The nodes; if we may not read them, the nodes that slices name."""
        if self.nodes is not None:
            return self.nodes
        names = {slice_.spec.node_name for slice_ in self.slices if slice_.spec.node_name}
        return tuple(FullNode(metadata=ObjectMeta(name=name)) for name in sorted(names))
