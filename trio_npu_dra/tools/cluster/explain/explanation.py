"""What is said about a pod or a claim, as data; and the report of an allocated claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.kit.api.objects import AllocationResult, Device
from trio_npu_dra.tools.cluster.explain.funnel import Funnel
from trio_npu_dra.tools.cluster.inventory import DeviceId, PlacedDevice, devices_of, newest
from trio_npu_dra.tools.cluster.matching import taint_words
from trio_npu_dra.tools.cluster.objects import Claim
from trio_npu_dra.tools.cluster.view import ClusterView


class Outcome(StrEnum):
    """What becomes of a pod or a claim."""

    GIVEN = "given"
    """It has its devices."""
    ENDED = "ended"
    """It is a pod that has ended, and needs no devices any more."""
    FREE = "free"
    """Nothing that we know of is in its way: the scheduler can allocate."""
    WAITS = "waits"
    """No node can give it what it asks for, as things are."""
    FAILS = "fails"
    """The scheduler gives up with an error each time it tries."""
    UNDECIDED = "undecided"
    """It depends on something that this package cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenDevice:
    """A device that a claim has.

    Attributes:
        request: Of the claim; `request/subrequest` if it had choices.
        device: Which.
        facts: Some facts of it: `910B4, memCapacity 32Gi, ring-0`.
        how: `with admin access`, or its share; empty for the whole device.
        now: What is wrong with it now: taints, or that it is not published.
    """

    request: str
    device: DeviceId
    facts: str
    how: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReport:
    """What is said about one claim.

    Attributes:
        title: `namespace/name`, or what the pod calls it if there is no claim.
        state: A sentence.
        given: Its devices, if it is allocated.
        funnels: For each request and subrequest; if it is allocated, as if it were not.
    """

    title: str
    state: str
    given: tuple[GivenDevice, ...] = ()
    funnels: tuple[Funnel, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer.

    Attributes:
        subject: `pod default/train` or `claim default/npu`.
        outcome: What becomes of it.
        sentence: Why, in one sentence.
        claims: Its claims.
        nodes: What each node says: its name, and why not; empty if nothing is in the way.
        helps: What would help, each by itself.
        events: What Kubernetes and drivers have said about it lately.
        doubts: What was not weighed.
    """

    subject: str
    outcome: Outcome
    sentence: str
    claims: tuple[ClaimReport, ...] = ()
    nodes: tuple[tuple[str, str], ...] = ()
    helps: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


_FACTS = (
    fact_names.CHIP_NAME,
    fact_names.PRODUCT_NAME,
    fact_names.TEMPLATE,
    fact_names.TOPOLOGY_GROUP,
)


def published(view: ClusterView) -> Mapping[DeviceId, PlacedDevice]:
    """All devices of the newest generation of each pool."""
    slices = (slice_ for found in newest(view.slices).values() for slice_ in found)
    return {placed.id: placed for placed in devices_of(slices)}


def given_report(claim: Claim, devices: Mapping[DeviceId, PlacedDevice]) -> ClaimReport:
    """What a claim has, if it is allocated."""
    allocation = claim.status.allocation
    if allocation is None:
        return ClaimReport(title=claim.title, state="is not allocated")
    users = [one.name for one in claim.status.reserved_for]
    used = f"used by {', '.join(users)}" if users else "no pod uses it now"
    count = len(allocation.devices.results)
    return ClaimReport(
        title=claim.title,
        state=f"has {count} device{'' if count == 1 else 's'}; {used}",
        given=tuple(_given(result, devices) for result in allocation.devices.results),
    )


def _given(result: AllocationResult, devices: Mapping[DeviceId, PlacedDevice]) -> GivenDevice:
    name = DeviceId(result.driver, result.pool, result.device)
    placed = devices.get(name)
    how = "with admin access" if result.admin_access else ""
    if result.share_id:
        amounts = result.consumed_capacity.items()
        how = "a share: " + ", ".join(f"{key} {amount}" for key, amount in sorted(amounts))
    now = "is not published any more"
    if placed is not None:
        now = ", ".join(taint_words(taint) for taint in placed.device.taints)
    return GivenDevice(
        request=result.request,
        device=name,
        facts=_facts(placed.device) if placed else "",
        how=how,
        now=now,
    )


def _facts(device: Device) -> str:
    """`910B4, ring-0, memCapacity 32Gi`."""
    facts = [device.attributes[name].value for name in _FACTS if name in device.attributes]
    named = [f"{name} {one.value}" for name, one in sorted(device.capacity.items())]
    return ", ".join((*(str(value) for value in dict.fromkeys(facts)), *named))
