"""Why a pod or a claim waits, or why it got what it got."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.kit.api.objects import AllocationResult, Device
from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.cel.selector import Decide, matches
from trio_npu_dra.tools.cluster.explain.case import (
    RESULTS_LIMIT,
    ClassMissing,
    Matcher,
    PodClaims,
    Usage,
    WantedClaim,
    claim_for,
    claims_of,
    from_devices,
    not_weighed,
    obstacles,
    wanted_claim,
)
from trio_npu_dra.tools.cluster.explain.funnel import (
    Funnel,
    Surroundings,
    counted,
    event_words,
    funnel,
    no_node_said,
    short_said,
)
from trio_npu_dra.tools.cluster.explain.search import (
    AllRefused,
    Given,
    Search,
    SearchTooLong,
    value_of,
)
from trio_npu_dra.tools.cluster.inventory import (
    NOT_EVICTED,
    Allotment,
    ClusterView,
    DeviceId,
    PlacedDevice,
    allotments,
    devices_of,
    newest,
    taken,
)
from trio_npu_dra.tools.cluster.objects import (
    ADMIN_LABEL,
    Claim,
    ClaimStatus,
    Pod,
    selects,
    taint_words,
)
from trio_npu_dra.tools.cluster.pools import NodePool, pools_by_node
from trio_npu_dra.tools.cluster.said import Action, Obstacle, OfNode, Outcome, Said, Why

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
        claim: The claim.
        given: Its devices, if it is allocated.
        funnels: For each request and subrequest; if it is allocated, as if it were not.
    """

    claim: Claim
    given: tuple[GivenDevice, ...] = ()
    funnels: tuple[Funnel, ...] = ()

    @property
    def state(self) -> str:
        """`has 4 devices; used by train-0`."""
        if self.claim.status.allocation is None:
            return "is not allocated"
        users = (*self.claim.pods, *self.claim.pod_groups)
        used = f"used by {', '.join(users)}" if users else "no pod uses it now"
        if self.claim.is_deleted:
            used += "; it is being deleted, and goes when no pod uses it any more"
        if self.claim.is_implicit and any("NoExecute" in one.now for one in self.given):
            used += f"; {NOT_EVICTED}"
        return f"has {counted(len(self.given), 'device')}; {used}"


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
    given = [
        GivenDevice(result=result, device=placed.device if placed else None)
        for result in (claim.status.allocation.devices.results if claim.status.allocation else ())
        for placed in [devices.get(DeviceId(result.driver, result.pool, result.device))]
    ]
    return ClaimReport(claim=claim, given=tuple(given))


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


def explain_claim(claim: Claim, view: ClusterView, decide: Decide = matches) -> Explanation:
    """Why a claim waits, or what it has, whatever pod comes for it."""
    subject = f"claim {claim.title}"
    if claim.status.allocation is not None:
        report = _had(claim, view, decide)
        has = Said(report.state, Why.HAS_DEVICES)
        return answer(subject, Outcome.GIVEN, has, view, (report,))
    if claim.metadata.deletion_timestamp:
        deleted = Said("it is being deleted", Why.CLAIM_DELETED, claim=claim.title)
        return answer(subject, Outcome.WAITS, deleted, view)
    case = Case(None, (claim,), view, Matcher(decide))
    found = case.explanation(subject)
    if found.outcome is not Outcome.FREE:
        return found
    sentence = f"it can be allocated on {found.sentence}, once a pod that uses it is scheduled"
    return replace(found, sentence=found.sentence.within(sentence))


def explain_pod(pod: Pod, view: ClusterView, decide: Decide = matches) -> Explanation:
    """Why a pod waits, or what it has."""
    subject = f"pod {pod.title}"
    found = claims_of(pod, view)
    if pod.status.has_ended:
        where = f"was on {pod.spec.node_name}" if pod.spec.node_name else "never had a node"
        text = f"it {where}, and has {pod.status.phase}"
        return answer(subject, Outcome.ENDED, _of_pod(text, Why.POD_ENDED, pod), view)
    if pod.spec.node_name:
        return _placed(subject, pod, found, view, decide)
    if problem := _not_scheduled(pod) or found.problem:
        return answer(subject, Outcome.WAITS, problem, view)
    case = Case(pod, tuple(found.claims.values()), view, Matcher(decide))
    explanation = case.explanation(subject)
    if explanation.outcome is not Outcome.FREE:
        return explanation
    sentence = (
        f"nothing is in its way on {explanation.sentence}: the scheduler has not come to it yet, "
        "or has reasons that are not weighed here (see its events)"
    )
    return replace(explanation, sentence=explanation.sentence.within(sentence))


def _not_scheduled(pod: Pod) -> Said | None:
    """Why the scheduler does not look at a pod; None if it does."""
    if pod.metadata.deletion_timestamp:
        text = "it is being deleted, and gets no node any more"
        return Said(text, Why.POD_DELETED, node=None, drivers=())
    if gates := [gate.name for gate in pod.spec.scheduling_gates]:
        return Said(f"its scheduling gates are closed: {', '.join(gates)}", Why.GATED, gates=gates)
    return None


def _of_pod(text: str, reason: Why, pod: Pod) -> Said:
    return Said(text, reason, node=pod.spec.node_name, phase=pod.status.phase)


def _placed(
    subject: str, pod: Pod, found: PodClaims, view: ClusterView, decide: Decide
) -> Explanation:
    """A pod that has its node."""
    made = pod.status.extended_resource_claim_status
    names = {f"{pod.metadata.namespace}/{made.resource_claim_name}"} if made else set()
    claims = [*found.claims.values(), *(one for one in view.claims if one.title in names)]
    reports = tuple(_had(claim, view, decide) for claim in claims)
    place = f"it is on {pod.spec.node_name}"
    if not claims and not found.missing:
        text = f"it has no claims; {place}, {pod.status.phase}"
        return answer(subject, Outcome.GIVEN, _of_pod(text, Why.NO_CLAIMS, pod), view)
    lacking = [
        Said(f"claim {one.title} is not allocated", Why.CLAIM_NOT_ALLOCATED, claim=one.title)
        for one in claims
        if not _has(one)
    ]
    if why := found.missing or next(iter(lacking), None):
        sentence = why.within(f"{place}, and the kubelet does not start it: {why}")
        return answer(subject, Outcome.WAITS, sentence, view, reports)
    if pod.metadata.deletion_timestamp:
        sentence = _ending(place, pod, reports)
    else:
        sentence = _started(place, pod, view)
    return answer(subject, Outcome.GIVEN, sentence, view, reports)


def _ending(place: str, pod: Pod, reports: Iterable[ClaimReport]) -> Said:
    """What a pod with devices waits for that is being deleted: the kubelet asks their drivers.

    The kubelet removes the slices of a driver that is away for 30 seconds.
    """
    given = [one for report in reports for one in report.given]
    drivers = sorted({one.result.driver for one in given if one.device is None})
    text = f"{place}, and is being deleted: it ends once its containers have"
    if drivers:
        text += (
            f" and {', '.join(drivers)} has given its devices back; that driver publishes them no "
            f"more: see whether it runs on {pod.spec.node_name}"
        )
    return Said(text, Why.POD_DELETED, node=pod.spec.node_name, drivers=drivers)


def _started(place: str, pod: Pod, view: ClusterView) -> Said:
    """How far a pod is that has its devices."""
    if pod.status.phase != "Pending":
        return _of_pod(f"{place}, {pod.status.phase}", Why.ON_NODE, pod)
    node = pod.spec.node_name
    warnings = [event for event in latest_events(view) if _is_of_kubelet(event)]
    if warnings:
        text = f"{place}, and does not start: {event_words(warnings[-1])}"
        return Said(text, Why.DOES_NOT_START, node=node, event=warnings[-1].reason)
    text = f"{place}; its devices are being prepared and its containers started"
    return Said(text, Why.STARTING, node=node)


def _has(claim: Claim) -> bool:
    return claim.status.allocation is not None


def _is_of_kubelet(event: Event) -> bool:
    """Whether a warning is about a pod that has its node; the scheduler's are over then."""
    return event.type == "Warning" and not event.reason.startswith("FailedScheduling")


def _had(claim: Claim, view: ClusterView, decide: Decide) -> ClaimReport:
    """A claim that is allocated, and what it could choose from if it were not."""
    report = given_report(claim, published(view))
    others = tuple(one for one in view.claims if one.title != claim.title)
    again = claim.model_copy(update={"status": ClaimStatus()})
    funnels = Case(None, (again,), replace(view, claims=others), Matcher(decide)).funnels()
    return replace(report, funnels=funnels)


_STRICT_SINCE: Final = 36
"""The minor version of Kubernetes from which nothing is allocated from flawed pools."""
_AS_KNOWN_SINCE: Final = 37
"""That from which a distinctAttribute compares all devices of a request with each other."""


@dataclass(frozen=True, slots=True)
class _NodeCase:
    """What one node is asked for, and what it says."""

    barred: Said | None
    claims: tuple[WantedClaim, ...]


class Case:
    """All claims of a pod, or one claim without a pod, on each node.

    *pools* are those of each node, if the caller has them already.
    """

    def __init__(
        self,
        pod: Pod | None,
        claims: Sequence[Claim],
        view: ClusterView,
        matcher: Matcher,
        pools: Mapping[str, tuple[NodePool, ...]] | None = None,
    ) -> None:
        self._pod = pod
        self._claims = claims
        self._view = view
        self._nodes = view.known_nodes
        self._matcher = matcher
        if pools is None:
            pools = pools_by_node(self._nodes, view.slices, minor=view.minor)
        self._pools = pools

    def funnels(self) -> tuple[Funnel, ...]:
        """What each request could choose from; none if that is unknown."""
        try:
            cases = self._cases()
        except (ClassMissing, Undecided):
            return ()
        wanted = max((case.claims for case in cases.values()), key=len, default=())
        reports = self._reports(wanted, self._surroundings(cases))
        return tuple(one for report in reports for one in report.funnels)

    def explanation(self, subject: str) -> Explanation:
        """What is said; of an outcome `FREE` the sentence names the nodes."""
        view = self._view
        try:
            cases = self._cases()
        except ClassMissing as error:
            return answer(subject, Outcome.WAITS, error.said, view)
        except Undecided as error:
            return answer(subject, Outcome.UNDECIDED, not_known(error), view)
        if why := self._refused():
            return answer(subject, Outcome.WAITS, why, view)
        around = self._surroundings(cases)
        looks = {
            node: self._look(node, case.claims, around)
            for node, case in cases.items()
            if not case.barred
        }
        wanted = max((case.claims for case in cases.values()), key=len, default=())
        reports = tuple(self._reports(wanted, around))
        outcome, sentence = self._verdict(looks, reports, around, wanted)
        if outcome is Outcome.WAITS and self._are_nodes_missed():
            outcome = Outcome.UNDECIDED
            sentence = Said(
                "some devices are not of one node, and you may not read nodes",
                Why.NODES_UNREADABLE,
            )
        is_stuck = outcome is Outcome.WAITS and bool(wanted)
        return replace(
            answer(subject, outcome, sentence, view),
            claims=reports,
            nodes=tuple(_node_words(cases, looks)),
            helps=Helps(wanted, around, self._matcher).found() if is_stuck else (),
            doubts=(*view.doubts, *(not_weighed(self._pod) if self._pod else ())),
        )

    def first(self) -> tuple[str, tuple[Given, ...]] | None:
        """The first node that can serve it, and with which devices; None if none can.

        None also where it is not decided, and where the scheduler fails.
        """
        try:
            cases = self._cases()
        except (ClassMissing, Undecided):
            return None
        around = self._surroundings(cases)
        for node, case in cases.items():
            if not case.barred:
                look = self._look(node, case.claims, around)
                if look.outcome is Outcome.FREE:
                    return node, look.given
                if look.outcome is not Outcome.WAITS:
                    return None
        return None

    def _look(self, node: str, claims: Sequence[WantedClaim], around: Surroundings) -> NodeOutlook:
        older = self._older(node, claims, around)
        return older or outlook(node, claims, around, self._matcher)

    def _refused(self) -> Said | None:
        """Why the API server takes no allocation of one of the claims; None if it does."""
        for claim in self._claims:
            if (
                claim.wants_admin_access
                and self._view.admin_access_allowed is False
                and claim.status.allocation is None
            ):
                return Said(
                    f"claim {claim.title} wants admin access, which is not given in namespace "
                    f"{claim.metadata.namespace}: it has no label {ADMIN_LABEL}=true",
                    Why.ADMIN_FORBIDDEN,
                    claim=claim.title,
                )
        return None

    def _older(
        self, node: str, claims: Sequence[WantedClaim], around: Surroundings
    ) -> NodeOutlook | None:
        """What older schedulers do in another way than is known here; None if that is nothing."""
        minor = self._view.minor
        if minor is None or minor >= _AS_KNOWN_SINCE:
            return None
        why: str = ""
        flawed = [problem for pool in around.pools[node] if (problem := pool.problem)]
        if flawed and minor < _STRICT_SINCE:
            why = flawed[0]
        for claim in claims:
            if _compares_several(claim):
                why = (
                    f"claim {claim.title} has a distinctAttribute for several devices of a request"
                )
        if not why:
            return None
        why += f", and what a scheduler of Kubernetes 1.{minor} makes of that is not known here"
        older = Said(why, Why.OLDER_SCHEDULER, minor=minor)
        return NodeOutlook(outcome=Outcome.UNDECIDED, why=older)

    def _are_nodes_missed(self) -> bool:
        """Whether there may be nodes that could serve it, and that we may not read."""
        is_shared = any(slice_.spec.node_name is None for slice_ in self._view.slices)
        return self._view.nodes is None and is_shared

    def _cases(self) -> dict[str, _NodeCase]:
        usage = Usage(self._view.pods)
        classes = self._view.classes
        named = tuple(
            wanted_claim(claim, classes) for claim in self._claims if not claim.status.allocation
        )
        cases = {}
        for node in self._nodes:
            extra: tuple[WantedClaim, ...] = ()
            resources: frozenset[str] = frozenset()
            if self._pod is not None:
                resources = from_devices(self._pod, node, self._view)
                made = claim_for(self._pod, resources, classes)
                extra = (wanted_claim(made, classes),) if made else ()
            name, found = node.metadata.name, tuple(self._barring(node, usage, resources))
            barred = Said("; ".join(found), OfNode.REFUSED, node=name, obstacles=found)
            cases[name] = _NodeCase(barred if found else None, (*named, *extra))
        return cases

    def _barring(self, node: FullNode, usage: Usage, resources: frozenset[str]) -> Iterator[Said]:
        if self._pod is not None and self._view.nodes is not None:
            yield from obstacles(self._pod, node, usage, resources)
        for claim in self._claims:
            selector = claim.status.allocation.node_selector if claim.status.allocation else None
            if selector is not None and not selects(selector, node):
                text = f"cannot have the devices that claim {claim.title} has"
                yield Said(text, Obstacle.DEVICES_ELSEWHERE, claim=claim.title)

    def _surroundings(self, cases: Mapping[str, _NodeCase]) -> Surroundings:
        held = allotments(self._view.claims, self._view.pods or ())
        return Surroundings(
            pools=self._pools,
            taken=taken(held),
            held=held,
            barred={node: case.barred for node, case in cases.items() if case.barred},
        )

    def _reports(
        self, wanted: Sequence[WantedClaim], around: Surroundings
    ) -> Iterator[ClaimReport]:
        devices = published(self._view)
        for claim in self._claims:
            if claim.status.allocation is not None:
                yield given_report(claim, devices)
        for one in wanted:
            funnels = (
                funnel(choice, around, self._matcher)
                for choices in one.requests
                for choice in choices
            )
            yield ClaimReport(claim=one.claim, funnels=tuple(funnels))

    def _verdict(
        self,
        looks: Mapping[str, NodeOutlook],
        reports: Sequence[ClaimReport],
        around: Surroundings,
        wanted: Sequence[WantedClaim],
    ) -> tuple[Outcome, Said]:
        """The outcome and its sentence."""
        whys: dict[Outcome, Said] = {}
        for look in looks.values():
            if look.why is not None:
                whys.setdefault(look.outcome, look.why)
        if failing := whys.get(Outcome.FAILS):
            return Outcome.FAILS, failing.within(f"the scheduler gives up: {failing}")
        if unsure := whys.get(Outcome.UNDECIDED):
            return Outcome.UNDECIDED, unsure
        if free := [node for node, look in looks.items() if look.outcome is Outcome.FREE]:
            more = f" and {counted(len(free) - 3, 'more node')}" if len(free) > 3 else ""
            text = ", ".join(free[:3]) + more
            return Outcome.FREE, Said(text, Why.NOTHING_IN_THE_WAY, nodes=free)
        for report in reports:
            sentence = _short(report.claim.title, report.funnels, wanted)
            if sentence:
                return Outcome.WAITS, sentence
        if not looks:
            return Outcome.WAITS, no_node_said(around.barred)
        funnels = (one for report in reports for one in report.funnels)
        unknown = next((one.undecided for one in funnels if one.undecided), "")
        why = not_known(unknown) if unknown else together_said(wanted, around, self._matcher)
        is_known = why.code not in {Why.NOT_KNOWN, Why.TOO_MANY}
        return Outcome.WAITS if is_known else Outcome.UNDECIDED, why


def _compares_several(claim: WantedClaim) -> bool:
    """Whether a distinctAttribute is about several devices of one request."""
    wanted = [one for choices in claim.requests for one in choices if one.count != 1]
    return any(rule.distinct and rule.is_about(one) for rule in claim.rules for one in wanted)


def _short(title: str, funnels: Sequence[Funnel], wanted: Sequence[WantedClaim]) -> Said | None:
    """The first request that is known to be served by no node, with all its subrequests."""
    claim = next((one for one in wanted if one.title == title), None)
    by_title = {one.wanted.title: one for one in funnels}
    for choices in claim.requests if claim else ():
        mine = [by_title[choice.title] for choice in choices]
        if all(one.short is not None and not one.undecided for one in mine):
            first, *others = (short_said(title, one) for one in mine)
            return first.within("; and ".join((first, *others)))
    return None


def _node_words(
    cases: Mapping[str, _NodeCase], looks: Mapping[str, NodeOutlook]
) -> Iterator[tuple[str, Said | None]]:
    words = {
        Outcome.FREE: None,
        Outcome.WAITS: Said("cannot satisfy the pod's claims", OfNode.UNSATISFIED),
        Outcome.FAILS: Said("makes the scheduler give up", OfNode.SCHEDULER_FAILS),
        Outcome.UNDECIDED: Said("is undecided", OfNode.NODE_UNDECIDED),
    }
    for node, case in cases.items():
        yield node, case.barred or words[looks[node].outcome]


_HOLDERS_TRIED = 40
_NODES_TRIED = 20
_ENDLESS_TRIED = 5
_TOO_MUCH = Said("there are too many combinations of devices to try", Why.TOO_MANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutlook:
    """What one node can do.

    Attributes:
        outcome: `FREE`, `WAITS`, `FAILS` or `UNDECIDED`.
        why: Of an error, or of what is not decided.
        given: The first allocation that fits.
    """

    outcome: Outcome
    why: Said | None = None
    given: tuple[Given, ...] = ()


def outlook(
    node: str,
    claims: Sequence[WantedClaim],
    around: Surroundings,
    matcher: Matcher,
    *,
    ignore_taints: bool = False,
) -> NodeOutlook:
    """Search a node for an allocation."""
    search = Search(around.pools[node], claims, around.taken, matcher, ignore_taints=ignore_taints)
    try:
        given = search.run()
    except (SelectorFails, AllRefused) as error:
        return NodeOutlook(outcome=Outcome.FAILS, why=_failure(error))
    except SearchTooLong:
        return NodeOutlook(outcome=Outcome.UNDECIDED, why=_TOO_MUCH)
    except Undecided as error:
        return NodeOutlook(outcome=Outcome.UNDECIDED, why=not_known(error))
    if given is None:
        return NodeOutlook(outcome=Outcome.WAITS)
    return NodeOutlook(outcome=Outcome.FREE, given=given)


def _failure(error: SelectorFails | AllRefused) -> Said:
    if isinstance(error, AllRefused):
        return error.said
    return Said(str(error), Why.SELECTOR_FAILS, error=str(error.__cause__))


def not_known(why: object) -> Said:
    """That we cannot tell, and why."""
    return Said(str(why), Why.NOT_KNOWN)


def together_said(wanted: Sequence[WantedClaim], around: Surroundings, matcher: Matcher) -> Said:
    """The reason: a constraint, a device that is wanted twice, or too little of something."""
    rules = [(claim, rule) for claim in wanted for rule in claim.rules]
    unbound = [replace(claim, rules=()) for claim in wanted]
    devices = {
        placed.id: placed
        for pools in around.pools.values()
        for pool in pools
        for placed in pool.devices
    }
    nodes = [node for node in around.pools if node not in around.barred]
    for node in nodes if rules else ():
        look = outlook(node, unbound, around, matcher)
        if look.outcome is Outcome.UNDECIDED and look.why is not None:
            return look.why
        if look.outcome is Outcome.FREE:
            given = [devices[one.device] for one in look.given]
            values = "; ".join(_values(rule.attribute, given) for _, rule in rules)
            words = " and ".join(f"{rule.words} of claim {claim.title}" for claim, rule in rules)
            return Said(
                f"enough devices of one node are free, but no choice of them satisfies {words}; "
                f"on {node} there would be {values}",
                Why.CONSTRAINED,
                constraints=[{"claim": claim.title, **rule.facts} for claim, rule in rules],
            )
    asked = counted(sum(len(claim.requests) for claim in wanted), "request")
    why = Said(
        "no node has enough free devices, counters or shares for all of them together",
        Why.FEW_TOGETHER,
    )
    if any(_collide(node, unbound, around, matcher) for node in nodes):
        why = Said(
            "some want the same device, and a claim cannot have a device twice, not even with "
            "admin access",
            Why.DEVICE_TWICE_WANTED,
        )
    return why.within(f"each of its {asked} could be served by itself, but {why}")


def _collide(
    node: str, claims: Sequence[WantedClaim], around: Surroundings, matcher: Matcher
) -> bool:
    """Whether requests with admin access, which need nothing free, are in the way of others."""
    parts = [
        [
            replace(claim, requests=tuple(one for one in claim.requests if not one[0].admin))
            for claim in claims
        ]
    ]
    parts += (
        [replace(claim, requests=(choices,))]
        for claim in claims
        for choices in claim.requests
        if choices[0].admin
    )
    return len(parts) > 1 and all(
        outlook(node, part, around, matcher).outcome is Outcome.FREE for part in parts
    )


def _values(attribute: str, given: Sequence[PlacedDevice]) -> str:
    """`npu-1 with topologyGroup ring-0, npu-3 with topologyGroup ring-1`."""
    short = attribute.rpartition("/")[2]
    words = []
    for placed in given:
        value = value_of(attribute, placed)
        how = f"with {short} {value[1]}" if value else f"without {short}"
        words.append(f"{placed.id.name} {how}")
    return ", ".join(words)


def _end_of(one: Allotment, node: str) -> Said:
    if not one.users:
        text = f"deleting {one.words}, which no pod uses, on {node}"
        return Said(text, Action.DELETE_CLAIM, claim=one.claim.title, node=node)
    deleted = ", which is being deleted"
    ends = ("end" if len(one.users) > 1 else "ends") + deleted * bool(one.ending)
    claim = f"claim {one.claim.title}" + deleted * one.claim.is_deleted
    text = f"when {' and '.join(one.users)} {ends} ({claim}), on {node}"
    return Said(text, Action.PODS_END, claim=one.claim.title, users=one.users, node=node)


class Helps:
    """Tries what would make an allocation possible, one change at a time."""

    def __init__(
        self, claims: tuple[WantedClaim, ...], around: Surroundings, matcher: Matcher
    ) -> None:
        self._claims = claims
        self._around = around
        self._matcher = matcher
        self._open = [node for node in around.pools if node not in around.barred][:_NODES_TRIED]
        self._endless = 0  # searches that found no end

    def found(self) -> tuple[Said, ...]:
        """What would help, what harms least first and the work of others last."""
        return (
            *self._fewer(),
            *self._unconstrained(),
            *self._tolerated(),
            *islice(self._unbarred(), 3),
            *islice(self._released(), 3),
        )

    def _is_free(
        self,
        nodes: Iterable[str],
        claims: tuple[WantedClaim, ...] | None = None,
        *,
        around: Surroundings | None = None,
        ignore_taints: bool = False,
    ) -> str:
        """The first node that could give it; empty if none could."""
        for node in nodes:
            if self._endless == _ENDLESS_TRIED:  # each takes a second
                break
            view = outlook(
                node,
                claims or self._claims,
                around or self._around,
                self._matcher,
                ignore_taints=ignore_taints,
            )
            if view.outcome is Outcome.FREE:
                return node
            self._endless += view.why == _TOO_MUCH
        return ""

    def _released(self) -> Iterator[Said]:
        """Claims whose end would do; if none alone would, whether all together would.

        A claim goes when its pods have: to delete it before frees nothing.
        """
        owners = {one.claim.title: one for held in self._around.held.values() for one in held}
        near = [one for one in owners.values() if self._is_near(one)]
        near.sort(key=lambda one: (not one.users, not one.is_ending, one.claim.title))
        useful = near[:_HOLDERS_TRIED]
        is_any = False
        for one in useful:
            node = self._is_free(self._open, around=self._without({one.claim.title}))
            if node:
                is_any = True
                yield _end_of(one, node)
        used = {one.claim.title for one in useful if one.users}
        everyone = {one.claim.title for one in useful}
        for claims, rest in ((used, ""), (everyone, ", and those that no pod uses are deleted")):
            if not is_any and (node := self._is_free(self._open, around=self._without(claims))):
                text = f"when the pods of several claims on {node} end{rest}"
                yield Said(text, Action.CLAIMS_END, node=node)
                break

    def _is_near(self, one: Allotment) -> bool:
        """Whether it holds a device that one of the requests could have."""
        for node in self._open:
            for pool in self._around.pools[node]:
                if (pool.id.driver, pool.id.name) == one.id[:2]:
                    return True
        return False

    def _without(self, claims: set[str]) -> Surroundings:
        held = {
            device: tuple(one for one in held if one.claim.title not in claims)
            for device, held in self._around.held.items()
        }
        return replace(self._around, held=held, taken=taken(held))

    def _tolerated(self) -> Iterator[Said]:
        if node := self._is_free(self._open, ignore_taints=True):
            text = f"tolerations of the devices' taints on {node}, or their recovery"
            yield Said(text, Action.TOLERATE, node=node)

    def _unconstrained(self) -> Iterator[Said]:
        for number, claim in enumerate(self._claims):
            for rule in claim.rules:
                rest = tuple(one for one in claim.rules if one is not rule)
                changed = replace(claim, rules=rest)
                claims = (*self._claims[:number], changed, *self._claims[number + 1 :])
                if node := self._is_free(self._open, claims):
                    yield Said(
                        f"claim {claim.title} without {rule.words}, on {node}",
                        Action.DROP_CONSTRAINT,
                        claim=claim.title,
                        constraint=rule.facts,
                        node=node,
                    )

    def _unbarred(self) -> Iterator[Said]:
        for node, why in islice(self._around.barred.items(), _NODES_TRIED):
            if node in self._around.pools and self._is_free([node]):
                text = f"{node} has what it asks for, but {why}"
                yield Said(text, Action.OPEN_NODE, node=node, obstacles=why.facts["obstacles"])

    def _fewer(self) -> Iterator[Said]:
        """Fewer devices for one request, the most that can be had."""
        for number, claim in enumerate(self._claims):
            for at, choices in enumerate(claim.requests):
                wanted = choices[-1]
                most = min((wanted.count or 1) - 1, RESULTS_LIMIT)
                for count in range(most, 0, -1):
                    less = (replace(wanted, count=count),)
                    requests = (*claim.requests[:at], less, *claim.requests[at + 1 :])
                    changed = replace(claim, requests=requests)
                    claims = (*self._claims[:number], changed, *self._claims[number + 1 :])
                    if node := self._is_free(self._open, claims):
                        yield Said(
                            f"{count} instead of {wanted.count} for request {wanted.title} of "
                            f"{claim.title}, on {node}",
                            Action.FEWER,
                            claim=claim.title,
                            request=wanted.title,
                            count=count,
                            node=node,
                        )
                        break
