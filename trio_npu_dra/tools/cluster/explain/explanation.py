"""What is said about a pod or a claim, as data; and the report of an allocated claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import AllocationResult, Device
from trio_npu_dra.tools.cluster.explain.funnel import Funnel
from trio_npu_dra.tools.cluster.inventory import (
    NOT_EVICTED,
    ClusterView,
    DeviceId,
    PlacedDevice,
    devices_of,
    newest,
)
from trio_npu_dra.tools.cluster.objects import Claim, taint_words
from trio_npu_dra.tools.cluster.said import Outcome, Said

_FACTS = (
    fact_names.CHIP_NAME,
    fact_names.PRODUCT_NAME,
    fact_names.TEMPLATE,
    fact_names.TOPOLOGY_GROUP,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenDevice:
    """A device that a claim has.

    Attributes:
        result: What was allocated; its request is `request/subrequest` if there were choices.
        device: What is published of it; None if it is not published any more.
    """

    result: AllocationResult
    device: Device | None

    @property
    def id(self) -> DeviceId:
        """Its name."""
        return DeviceId(self.result.driver, self.result.pool, self.result.device)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Those that say what it is: `chipName`, `topologyGroup` and such."""
        known = self.device.attributes if self.device else {}
        return {name: known[name].value for name in _FACTS if name in known}

    @property
    def facts(self) -> str:
        """Some facts of it: `910B4, ring-0, memCapacity 32Gi`."""
        capacity = self.device.capacity if self.device else {}
        named = [f"{name} {one.value}" for name, one in sorted(capacity.items())]
        return ", ".join((*dict.fromkeys(map(str, self.attributes.values())), *named))

    @property
    def how(self) -> str:
        """`with admin access`, or its share; empty for the whole device."""
        if self.result.share_id:
            amounts = sorted(self.result.consumed_capacity.items())
            return "a share: " + ", ".join(f"{key} {amount}" for key, amount in amounts)
        return "with admin access" if self.result.admin_access else ""

    @property
    def now(self) -> str:
        """What is wrong with it now: taints, or that it is not published."""
        if self.device is None:
            return "is not published any more"
        return ", ".join(taint_words(taint) for taint in self.device.taints)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReport:
    """What is said about one claim.

    Attributes:
        title: `namespace/name`.
        pods: Names of the pods that may use its devices; None if it is not allocated.
        pod_groups: Names of PodGroups of which all pods may.
        given: Its devices, if it is allocated.
        funnels: For each request and subrequest; if it is allocated, as if it were not.
        is_deleted: Whether it is being deleted, which waits for its pods.
        is_implicit: Whether the scheduler made it for limits of a pod.
    """

    title: str
    pods: tuple[str, ...] | None = None
    pod_groups: tuple[str, ...] = ()
    given: tuple[GivenDevice, ...] = ()
    funnels: tuple[Funnel, ...] = ()
    is_deleted: bool = False
    is_implicit: bool = False

    @property
    def state(self) -> str:
        """`has 4 devices; used by train-0`."""
        if self.pods is None:
            return "is not allocated"
        count = len(self.given)
        users = (*self.pods, *(f"PodGroup {name}" for name in self.pod_groups))
        used = f"used by {', '.join(users)}" if users else "no pod uses it now"
        if self.is_deleted:
            used += "; it is being deleted, and goes when no pod uses it any more"
        if self.is_implicit and any("NoExecute" in one.now for one in self.given):
            used += f"; {NOT_EVICTED}"
        return f"has {count} device{'' if count == 1 else 's'}; {used}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer.

    Attributes:
        subject: `pod default/train` or `claim default/npu`.
        outcome: What becomes of it.
        sentence: Why, in one sentence.
        claims: Its claims.
        nodes: What each node says: its name, and why not; None if nothing is in the way.
        helps: What would help, each by itself.
        events: What Kubernetes and drivers have said about it lately, the newest last.
        doubts: What was not weighed.
    """

    subject: str
    outcome: Outcome
    sentence: Said
    claims: tuple[ClaimReport, ...] = ()
    nodes: tuple[tuple[str, Said | None], ...] = ()
    helps: tuple[Said, ...] = ()
    events: tuple[Event, ...] = ()
    doubts: tuple[Said, ...] = ()


def published(view: ClusterView) -> Mapping[DeviceId, PlacedDevice]:
    """All devices of the newest generation of each pool."""
    slices = (slice_ for found in newest(view.slices).values() for slice_ in found)
    return {placed.id: placed for placed in devices_of(slices)}


def given_report(claim: Claim, devices: Mapping[DeviceId, PlacedDevice]) -> ClaimReport:
    """What a claim has, if it is allocated."""
    allocation = claim.status.allocation
    if allocation is None:
        return ClaimReport(title=claim.title)
    return ClaimReport(
        title=claim.title,
        pods=claim.status.users("pods"),
        pod_groups=claim.status.users("podgroups"),
        given=tuple(_given(result, devices) for result in allocation.devices.results),
        is_deleted=claim.metadata.deletion_timestamp is not None,
        is_implicit=claim.is_implicit,
    )


def _given(result: AllocationResult, devices: Mapping[DeviceId, PlacedDevice]) -> GivenDevice:
    placed = devices.get(DeviceId(result.driver, result.pool, result.device))
    return GivenDevice(result=result, device=placed.device if placed else None)


def latest_events(view: ClusterView) -> tuple[Event, ...]:
    """What was said lately, the newest last."""
    return tuple(sorted(view.events, key=lambda event: event.when)[-5:])


def answer(
    subject: str,
    outcome: Outcome,
    sentence: Said,
    view: ClusterView,
    claims: tuple[ClaimReport, ...] = (),
) -> Explanation:
    """An answer with the Events and doubts of the view."""
    return Explanation(
        subject=subject,
        outcome=outcome,
        sentence=sentence,
        claims=claims,
        events=latest_events(view),
        doubts=view.doubts,
    )
