"""All claims of a pod, or one claim without a pod, on every node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.tools.cluster.cel import Undecided
from trio_npu_dra.tools.cluster.explain.explanation import (
    ClaimReport,
    Explanation,
    answer,
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
from trio_npu_dra.tools.cluster.explain.pod_claims import claim_for, from_devices
from trio_npu_dra.tools.cluster.explain.pod_fit import Usage, not_weighed, obstacles
from trio_npu_dra.tools.cluster.explain.search import Given
from trio_npu_dra.tools.cluster.explain.wanted import ClassMissing, WantedClaim, wanted_claim
from trio_npu_dra.tools.cluster.explain.words import counted, no_node_said, short_said
from trio_npu_dra.tools.cluster.inventory import ClusterView, allotments, taken
from trio_npu_dra.tools.cluster.objects import ADMIN_LABEL, Claim, Pod, selects
from trio_npu_dra.tools.cluster.pools import NodePool, pools_by_node
from trio_npu_dra.tools.cluster.said import Obstacle, OfNode, Outcome, Said, Why

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
