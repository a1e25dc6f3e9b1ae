"""What is said about a pod or a claim, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trio_npu_dra.tools.cluster.explain.funnel import Funnel
from trio_npu_dra.tools.cluster.inventory import DeviceId


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
