"""Why a pod or a claim waits, or why it got what it got."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.kit.api.objects import Event
from trio_npu_dra.tools.cluster.cel import Undecided
from trio_npu_dra.tools.cluster.cel.selector import Decide, matches
from trio_npu_dra.tools.cluster.explain.explanation import (
    ClaimReport,
    Explanation,
    given_report,
    published,
)
from trio_npu_dra.tools.cluster.explain.funnel import Funnel, Surroundings, funnel
from trio_npu_dra.tools.cluster.explain.matcher import Matcher
from trio_npu_dra.tools.cluster.explain.outlook import (
    Helps,
    NodeOutlook,
    not_known,
    outlook,
    together_said,
)
from trio_npu_dra.tools.cluster.explain.pod_claims import (
    PodClaims,
    claim_for,
    claims_of,
    from_devices,
)
from trio_npu_dra.tools.cluster.explain.pod_fit import Usage, not_weighed, obstacles
from trio_npu_dra.tools.cluster.explain.wanted import ClassMissing, WantedClaim, wanted_claim
from trio_npu_dra.tools.cluster.explain.words import counted, event_words, no_node_said, short_said
from trio_npu_dra.tools.cluster.inventory import allotments, taken
from trio_npu_dra.tools.cluster.matching import selects
from trio_npu_dra.tools.cluster.objects import ADMIN_LABEL, Claim, ClaimStatus
from trio_npu_dra.tools.cluster.pods import Pod
from trio_npu_dra.tools.cluster.pools import pools_by_node
from trio_npu_dra.tools.cluster.said import Obstacle, OfNode, Outcome, Said, Why
from trio_npu_dra.tools.cluster.view import ClusterView

_STRICT_SINCE: Final = 36
"""The minor version of Kubernetes from which nothing is allocated from flawed pools."""
_AS_KNOWN_SINCE: Final = 37
"""That from which a distinctAttribute compares all devices of a request with each other."""


def explain_claim(claim: Claim, view: ClusterView, decide: Decide = matches) -> Explanation:
    """Why a claim waits, or what it has, whatever pod comes for it."""
    subject = f"claim {claim.title}"
    if claim.status.allocation is not None:
        report = _had(claim, view, decide)
        has = Said(report.state, Why.HAS_DEVICES)
        return _answer(subject, Outcome.GIVEN, has, view, (report,))
    case = _Case(None, (claim,), view, decide)
    found = case.explanation(subject)
    if found.outcome is not Outcome.FREE:
        return found
    sentence = f"it can be allocated on {found.sentence}, once a pod that uses it is scheduled"
    return replace(found, sentence=found.sentence.within(sentence))


def explain_pod(pod: Pod, view: ClusterView, decide: Decide = matches) -> Explanation:
    """Why a pod waits, or what it has."""
    subject = f"pod {pod.title}"
    found = claims_of(pod, view)
    if pod.status.phase in {"Succeeded", "Failed"}:
        where = f"was on {pod.spec.node_name}" if pod.spec.node_name else "never had a node"
        text = f"it {where}, and has {pod.status.phase}"
        return _answer(subject, Outcome.ENDED, _of_pod(text, Why.POD_ENDED, pod), view)
    if pod.spec.node_name:
        return _placed(subject, pod, found, view, decide)
    if pod.spec.scheduling_gates:
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        text = f"its scheduling gates are closed: {', '.join(gates)}"
        return _answer(subject, Outcome.WAITS, Said(text, Why.GATED, gates=gates), view)
    if found.problem:
        return _answer(subject, Outcome.WAITS, found.problem, view)
    case = _Case(pod, tuple(found.claims.values()), view, decide)
    explanation = case.explanation(subject)
    if explanation.outcome is not Outcome.FREE:
        return explanation
    sentence = (
        f"nothing is in its way on {explanation.sentence}: the scheduler has not come to it yet, "
        "or has reasons that are not weighed here (see its events)"
    )
    return replace(explanation, sentence=explanation.sentence.within(sentence))


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
        return _answer(subject, Outcome.GIVEN, _of_pod(text, Why.NO_CLAIMS, pod), view)
    lacking = [
        Said(f"claim {one.title} is not allocated", Why.CLAIM_NOT_ALLOCATED, claim=one.title)
        for one in claims
        if not _has(one)
    ]
    if why := found.missing or next(iter(lacking), None):
        sentence = why.within(f"{place}, and the kubelet does not start it: {why}")
        return _answer(subject, Outcome.WAITS, sentence, view, reports)
    return _answer(subject, Outcome.GIVEN, _started(place, pod, view), view, reports)


def _started(place: str, pod: Pod, view: ClusterView) -> Said:
    """How far a pod is that has its devices."""
    if pod.status.phase != "Pending":
        return _of_pod(f"{place}, {pod.status.phase}", Why.ON_NODE, pod)
    node = pod.spec.node_name
    warnings = [event for event in _events(view) if _is_of_kubelet(event)]
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
    funnels = _Case(None, (again,), replace(view, claims=others), decide).funnels()
    return replace(report, funnels=funnels)


@dataclass(frozen=True, slots=True)
class _NodeCase:
    """What one node is asked for, and what it says."""

    barred: Said | None
    claims: tuple[WantedClaim, ...]


class _Case:
    """All claims of a pod, or one claim without a pod, on each node."""

    def __init__(
        self, pod: Pod | None, claims: Sequence[Claim], view: ClusterView, decide: Decide
    ) -> None:
        self._pod = pod
        self._claims = claims
        self._view = view
        self._nodes = view.known_nodes
        self._matcher = Matcher(decide)

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
            return _answer(subject, Outcome.WAITS, error.said, view)
        except Undecided as error:
            return _answer(subject, Outcome.UNDECIDED, not_known(error), view)
        if why := self._refused():
            return _answer(subject, Outcome.WAITS, why, view)
        around = self._surroundings(cases)
        looks = {
            node: self._older(node, case.claims, around)
            or outlook(node, case.claims, around, self._matcher)
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
            _answer(subject, outcome, sentence, view),
            claims=reports,
            nodes=tuple(_node_words(cases, looks)),
            helps=Helps(wanted, around, self._matcher).found() if is_stuck else (),
            doubts=(*view.doubts, *(not_weighed(self._pod) if self._pod else ())),
        )

    def _refused(self) -> Said | None:
        """Why the API server takes no allocation of one of the claims; None if it does."""
        for claim in self._claims:
            if (
                claim.wants_admin_access
                and self._view.admin_access_allowed is False
                and not _has(claim)
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
        held = allotments(self._view.claims)
        return Surroundings(
            pools=pools_by_node(self._nodes, self._view.slices, minor=self._view.minor),
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
            yield ClaimReport(title=one.title, funnels=tuple(funnels))

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
            sentence = _short(report.title, report.funnels, wanted)
            if sentence:
                return Outcome.WAITS, sentence
        if not looks:
            return Outcome.WAITS, no_node_said(around.barred)
        return Outcome.WAITS, together_said(wanted, around, self._matcher)


def _compares_several(claim: WantedClaim) -> bool:
    """Whether a distinctAttribute is about several devices of one request."""
    wanted = [one for choices in claim.requests for one in choices if one.count != 1]
    return any(rule.distinct and rule.is_about(one) for rule in claim.rules for one in wanted)


def _short(title: str, funnels: Sequence[Funnel], wanted: Sequence[WantedClaim]) -> Said | None:
    """The first request that no node can serve by itself, with all its subrequests."""
    claim = next((one for one in wanted if one.title == title), None)
    by_title = {one.wanted.title: one for one in funnels}
    for choices in claim.requests if claim else ():
        mine = [by_title[choice.title] for choice in choices]
        if all(one.short is not None for one in mine):
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


def _events(view: ClusterView) -> tuple[Event, ...]:
    """What was said lately, the newest last."""
    return tuple(sorted(view.events, key=lambda event: event.when)[-5:])


def _answer(
    subject: str,
    outcome: Outcome,
    sentence: Said,
    view: ClusterView,
    claims: tuple[ClaimReport, ...] = (),
) -> Explanation:
    return Explanation(
        subject=subject,
        outcome=outcome,
        sentence=sentence,
        claims=claims,
        events=_events(view),
        doubts=view.doubts,
    )
