"""Why a pod or a claim waits, or why it got what it got."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import AllocationResult, Device
from trio_npu_dra.tools.cluster.cel import Undecided
from trio_npu_dra.tools.cluster.cel.selector import Decide, matches
from trio_npu_dra.tools.cluster.explain.case import (
    RESULTS_LIMIT,
    Case,
    ClassMissing,
    Matcher,
    PodClaims,
    WantedClaim,
    case_of,
    claims_of,
    not_weighed,
)
from trio_npu_dra.tools.cluster.explain.funnel import Funnel, funnel, short_said
from trio_npu_dra.tools.cluster.explain.search import (
    TOO_MUCH,
    Given,
    NodeOutlook,
    check,
    not_known,
    outlook,
    value_of,
)
from trio_npu_dra.tools.cluster.inventory import (
    NOT_EVICTED,
    Allotment,
    ClusterView,
    DeviceId,
    devices_of,
    id_of,
    newest,
)
from trio_npu_dra.tools.cluster.objects import (
    ADMIN_LABEL,
    Claim,
    ClaimStatus,
    Pod,
    taint_words,
)
from trio_npu_dra.tools.cluster.said import Action, OfNode, Outcome, Said, Why, counted

_HOLDERS_TRIED = 40
_NODES_TRIED = 20
_ENDLESS_TRIED = 5
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
        return id_of(self.result)

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
    """The report about one claim.

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
        events: The latest Events of Kubernetes and drivers about it, the newest last.
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


def explain_claim(claim: Claim, view: ClusterView, decide: Decide = matches) -> Explanation:
    """Why a claim waits, or what it has, whatever pod comes for it."""
    subject = f"claim {claim.title}"
    if claim.status.allocation is not None:
        report = _had(claim, view, Matcher(decide))
        has = Said(report.state, Why.HAS_DEVICES)
        return _answer(subject, Outcome.GIVEN, has, view, (report,))
    if claim.is_deleted:
        deleted = Said("it is being deleted", Why.CLAIM_DELETED, claim=claim.title)
        return _answer(subject, Outcome.WAITS, deleted, view)
    found = _waiting(subject, None, (claim,), view, Matcher(decide))
    if found.outcome is not Outcome.FREE:
        return found
    sentence = f"it can be allocated on {found.sentence}, once a pod that uses it is scheduled"
    return replace(found, sentence=found.sentence.within(sentence))


def explain_pod(pod: Pod, view: ClusterView, decide: Decide = matches) -> Explanation:
    """Why a pod waits, or what it has."""
    subject = f"pod {pod.title}"
    named = claims_of(pod, view)
    if pod.status.has_ended:
        where = f"was on {pod.spec.node_name}" if pod.spec.node_name else "never had a node"
        text = f"it {where}, and has {pod.status.phase}"
        return _answer(subject, Outcome.ENDED, _of_pod(text, Why.POD_ENDED, pod), view)
    if pod.spec.node_name:
        return _placed(subject, pod, named, view, Matcher(decide))
    if problem := _not_scheduled(pod) or named.problem:
        return _answer(subject, Outcome.WAITS, problem, view)
    found = _waiting(subject, pod, named.claims, view, Matcher(decide))
    if found.outcome is not Outcome.FREE:
        return found
    sentence = (
        f"nothing is in its way on {found.sentence}: the scheduler has not come to it yet, "
        "or has reasons that are not weighed here (see its events)"
    )
    return replace(found, sentence=found.sentence.within(sentence))


# --- a pod or a claim that waits -----------------------------------------------------------------


def _not_scheduled(pod: Pod) -> Said | None:
    """Why the scheduler does not look at a pod; None if it does."""
    if pod.metadata.deletion_timestamp:
        text = "it is being deleted, and gets no node any more"
        return Said(text, Why.POD_DELETED, node=None, drivers=())
    if gates := [gate.name for gate in pod.spec.scheduling_gates]:
        return Said(f"its scheduling gates are closed: {', '.join(gates)}", Why.GATED, gates=gates)
    return None


def _waiting(
    subject: str, pod: Pod | None, claims: Sequence[Claim], view: ClusterView, matcher: Matcher
) -> Explanation:
    """Why nothing is allocated; of an outcome `FREE` the sentence names the nodes."""
    try:
        case = case_of(pod, claims, view, matcher)
    except ClassMissing as error:
        return _answer(subject, Outcome.WAITS, error.said, view)
    except Undecided as error:
        return _answer(subject, Outcome.UNDECIDED, not_known(error), view)
    if why := _refused(claims, view):
        return _answer(subject, Outcome.WAITS, why, view)
    outlooks = {node: check(case, node) for node in case.open}
    funnels = [_funnels(claim, case) for claim in case.claims]
    outcome, sentence = _verdict(case, outlooks, funnels)
    is_shared = any(slice_.spec.node_name is None for slice_ in view.slices)
    if outcome is Outcome.WAITS and view.nodes is None and is_shared:
        outcome = Outcome.UNDECIDED
        sentence = Said(
            "some devices are not of one node, and you may not read nodes", Why.NODES_UNREADABLE
        )
    is_stuck = outcome is Outcome.WAITS and bool(case.claims)
    return replace(
        _answer(subject, outcome, sentence, view),
        claims=(
            *(_report(one, view) for one in claims if one.status.allocation),
            *(
                ClaimReport(claim=one.claim, funnels=of_it)
                for one, of_it in zip(case.claims, funnels, strict=True)
            ),
        ),
        nodes=tuple(_nodes_said(case, outlooks)),
        helps=Helps(case).found() if is_stuck else (),
        doubts=(*view.doubts, *(not_weighed(pod) if pod else ())),
    )


def _funnels(claim: WantedClaim, case: Case) -> tuple[Funnel, ...]:
    return tuple(funnel(choice, case) for choices in claim.requests for choice in choices)


def _refused(claims: Iterable[Claim], view: ClusterView) -> Said | None:
    """Why the API server takes no allocation of one of the claims; None if it does."""
    for claim in claims:
        is_open = claim.status.allocation is None
        if claim.wants_admin_access and view.admin_access_allowed is False and is_open:
            return Said(
                f"claim {claim.title} wants admin access, which is not given in namespace "
                f"{claim.metadata.namespace}: it has no label {ADMIN_LABEL}=true",
                Why.ADMIN_FORBIDDEN,
                claim=claim.title,
            )
    return None


def _verdict(
    case: Case, outlooks: Mapping[str, NodeOutlook], funnels: Sequence[Sequence[Funnel]]
) -> tuple[Outcome, Said]:
    """The outcome and its sentence, given the *funnels* of each claim."""
    whys: dict[Outcome, Said] = {}
    for one in outlooks.values():
        if one.why is not None:
            whys.setdefault(one.outcome, one.why)
    if failing := whys.get(Outcome.FAILS):
        return Outcome.FAILS, failing.within(f"the scheduler gives up: {failing}")
    if unsure := whys.get(Outcome.UNDECIDED):
        return Outcome.UNDECIDED, unsure
    if free := [node for node, one in outlooks.items() if one.outcome is Outcome.FREE]:
        more = f" and {counted(len(free) - 3, 'more node')}" if len(free) > 3 else ""
        text = ", ".join(free[:3]) + more
        return Outcome.FREE, Said(text, Why.NOTHING_IN_THE_WAY, nodes=free)
    for claim, of_it in zip(case.claims, funnels, strict=True):
        if sentence := _short(claim, of_it):
            return Outcome.WAITS, sentence
    if not outlooks:
        return Outcome.WAITS, _no_node_said(case.barred)
    unknown = next((one.undecided for of_it in funnels for one in of_it if one.undecided), "")
    why = not_known(unknown) if unknown else _together_said(case)
    is_known = why.code not in {Why.NOT_KNOWN, Why.TOO_MANY}
    return Outcome.WAITS if is_known else Outcome.UNDECIDED, why


def _short(claim: WantedClaim, funnels: Iterable[Funnel]) -> Said | None:
    """The first request that is known to be served by no node, with all its subrequests."""
    by_title = {one.wanted.title: one for one in funnels}
    for choices in claim.requests:
        mine = [by_title[choice.title] for choice in choices]
        if all(one.short is not None and not one.undecided for one in mine):
            first, *others = (short_said(claim.title, one) for one in mine)
            return first.within("; and ".join((first, *others)))
    return None


def _no_node_said(barred: Mapping[str, Said]) -> Said:
    """That no node takes the pod, given why each does not."""
    if not barred:
        return Said("there is no node", Why.NO_NODE)
    why = [f"{node} {reason}" for node, reason in barred.items()]
    more = f"; and {counted(len(why) - 3, 'more node')}" if len(why) > 3 else ""
    text = "no node takes the pod: " + "; ".join(why[:3]) + more
    return Said(text, Why.NO_NODE_TAKES_POD)


def _together_said(case: Case) -> Said:
    """The reason: a constraint, a device that is wanted twice, or too little of something."""
    rules = [(claim, rule) for claim in case.claims for rule in claim.rules]
    unbound = case.asking(*(replace(claim, rules=()) for claim in case.claims))
    for node in case.open if rules else ():
        found = outlook(unbound, node)
        if found.outcome is Outcome.UNDECIDED and found.why is not None:
            return found.why
        if found.outcome is Outcome.FREE:
            values = "; ".join(_values(rule.attribute, found.given) for _, rule in rules)
            words = " and ".join(f"{rule.words} of claim {claim.title}" for claim, rule in rules)
            return Said(
                f"enough devices of one node are free, but no choice of them satisfies {words}; "
                f"on {node} there would be {values}",
                Why.CONSTRAINED,
                constraints=[{"claim": claim.title, **rule.facts} for claim, rule in rules],
            )
    asked = counted(sum(len(claim.requests) for claim in case.claims), "request")
    why = Said(
        "no node has enough free devices, counters or shares for all of them together",
        Why.FEW_TOGETHER,
    )
    if any(_collide(unbound, node) for node in case.open):
        why = Said(
            "some want the same device, and a claim cannot have a device twice, not even with "
            "admin access",
            Why.DEVICE_TWICE_WANTED,
        )
    return why.within(f"each of its {asked} could be served by itself, but {why}")


def _collide(case: Case, node: str) -> bool:
    """Whether requests with admin access, which need nothing free, are in the way of others."""
    parts = [
        case.asking(replace(claim, requests=(choices,)))
        for claim in case.claims
        for choices in claim.requests
        if choices[0].admin
    ]
    others = (
        replace(claim, requests=tuple(one for one in claim.requests if not one[0].admin))
        for claim in case.claims
    )
    return bool(parts) and all(
        outlook(part, node).outcome is Outcome.FREE for part in (case.asking(*others), *parts)
    )


def _values(attribute: str, given: Iterable[Given]) -> str:
    """`npu-1 with topologyGroup ring-0, npu-3 with topologyGroup ring-1`."""
    short = attribute.rpartition("/")[2]
    words = []
    for one in given:
        value = value_of(attribute, one.placed)
        how = f"with {short} {value[1]}" if value else f"without {short}"
        words.append(f"{one.placed.id.name} {how}")
    return ", ".join(words)


def _nodes_said(
    case: Case, outlooks: Mapping[str, NodeOutlook]
) -> Iterator[tuple[str, Said | None]]:
    said = {
        Outcome.FREE: None,
        Outcome.WAITS: Said("cannot satisfy the pod's claims", OfNode.UNSATISFIED),
        Outcome.FAILS: Said("makes the scheduler give up", OfNode.SCHEDULER_FAILS),
        Outcome.UNDECIDED: Said("is undecided", OfNode.NODE_UNDECIDED),
    }
    for node in case.asked:
        yield node, case.barred.get(node) or said[outlooks[node].outcome]


# --- a pod that has its node, and what a claim has ------------------------------------------------


def _of_pod(text: str, reason: Why, pod: Pod) -> Said:
    return Said(text, reason, node=pod.spec.node_name, phase=pod.status.phase)


def _placed(
    subject: str, pod: Pod, found: PodClaims, view: ClusterView, matcher: Matcher
) -> Explanation:
    """A pod that has its node."""
    made = pod.status.extended_resource_claim_status
    names = {f"{pod.metadata.namespace}/{made.resource_claim_name}"} if made else set()
    claims = [*found.claims, *(one for one in view.claims if one.title in names)]
    reports = tuple(_had(claim, view, matcher) for claim in claims)
    place = f"it is on {pod.spec.node_name}"
    if not claims and not found.missing:
        text = f"it has no claims; {place}, {pod.status.phase}"
        return _answer(subject, Outcome.GIVEN, _of_pod(text, Why.NO_CLAIMS, pod), view)
    lacking = (
        Said(f"claim {one.title} is not allocated", Why.CLAIM_NOT_ALLOCATED, claim=one.title)
        for one in claims
        if one.status.allocation is None
    )
    if why := found.missing or next(lacking, None):
        sentence = why.within(f"{place}, and the kubelet does not start it: {why}")
        return _answer(subject, Outcome.WAITS, sentence, view, reports)
    is_ending = pod.metadata.deletion_timestamp is not None
    sentence = _ending(place, pod, reports) if is_ending else _started(place, pod, view)
    return _answer(subject, Outcome.GIVEN, sentence, view, reports)


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
    warnings = [
        event
        for event in _latest_events(view)
        if event.type == "Warning" and not event.reason.startswith("FailedScheduling")
    ]  # of the kubelet: those of the scheduler are over
    if warnings:
        text = f"{place}, and does not start: {event_words(warnings[-1])}"
        return Said(text, Why.DOES_NOT_START, node=node, event=warnings[-1].reason)
    text = f"{place}; its devices are being prepared and its containers started"
    return Said(text, Why.STARTING, node=node)


def _had(claim: Claim, view: ClusterView, matcher: Matcher) -> ClaimReport:
    """A claim that is allocated, and what it could choose from if it were not."""
    others = tuple(one for one in view.claims if one.title != claim.title)
    again = claim.model_copy(update={"status": ClaimStatus()})
    try:
        case = case_of(None, (again,), replace(view, claims=others), matcher)
    except (ClassMissing, Undecided):
        return _report(claim, view)
    funnels = (one for asked in case.claims for one in _funnels(asked, case))
    return replace(_report(claim, view), funnels=tuple(funnels))


def _report(claim: Claim, view: ClusterView) -> ClaimReport:
    """What a claim has, if it is allocated."""
    slices = (slice_ for found in newest(view.slices).values() for slice_ in found)
    published = {placed.id: placed.device for placed in devices_of(slices)}
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    given = (GivenDevice(result=one, device=published.get(id_of(one))) for one in results)
    return ClaimReport(claim=claim, given=tuple(given))


def _latest_events(view: ClusterView) -> tuple[Event, ...]:
    """The latest Events, the newest last."""
    return tuple(sorted(view.events, key=lambda event: event.when)[-5:])


def _answer(
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
        events=_latest_events(view),
        doubts=view.doubts,
    )


def event_words(event: Event) -> str:
    """`Warning FailedScheduling: 0/3 nodes are available`."""
    return " ".join(filter(None, (event.type, f"{event.reason}:", event.message)))


# --- what would help -----------------------------------------------------------------------------


class Helps:
    """Tries what would make an allocation possible, one change at a time."""

    def __init__(self, case: Case) -> None:
        self._case = case.asking(*case.claims)
        self._open = case.open[:_NODES_TRIED]
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

    def _first(self, case: Case, nodes: Iterable[str] | None = None) -> str:
        """The first node that could serve this case; empty if none could."""
        for node in self._open if nodes is None else nodes:
            if self._endless == _ENDLESS_TRIED:  # each takes a second
                break
            found = outlook(case, node)
            if found.outcome is Outcome.FREE:
                return node
            self._endless += found.why == TOO_MUCH
        return ""

    def _released(self) -> Iterator[Said]:
        """Claims whose end would do; if none alone would, whether all together would.

        A claim goes when its pods have: to delete it before frees nothing.
        """
        owners = {one.claim.title: one for held in self._case.held.values() for one in held}
        pools = {pool.id for node in self._open for pool in self._case.pools[node]}
        near = [one for one in owners.values() if one.id[:2] in pools]
        near.sort(key=lambda one: (not one.users, not one.is_ending, one.claim.title))
        useful = near[:_HOLDERS_TRIED]
        is_any = False
        for one in useful:
            if node := self._first(self._case.without({one.claim.title})):
                is_any = True
                yield _end_of(one, node)
        used = {one.claim.title for one in useful if one.users}
        everyone = {one.claim.title for one in useful}
        for claims, rest in ((used, ""), (everyone, ", and those that no pod uses are deleted")):
            if not is_any and (node := self._first(self._case.without(claims))):
                text = f"when the pods of several claims on {node} end{rest}"
                yield Said(text, Action.CLAIMS_END, node=node)
                break

    def _with(self, claim: WantedClaim, **changes: Any) -> Case:
        """The case with one of its claims changed."""
        claims = self._case.claims
        return self._case.asking(
            *(replace(one, **changes) if one is claim else one for one in claims)
        )

    def _tolerated(self) -> Iterator[Said]:
        if node := self._first(replace(self._case, ignore_taints=True)):
            text = f"tolerations of the devices' taints on {node}, or their recovery"
            yield Said(text, Action.TOLERATE, node=node)

    def _unconstrained(self) -> Iterator[Said]:
        for claim in self._case.claims:
            for rule in claim.rules:
                rest = tuple(one for one in claim.rules if one is not rule)
                if node := self._first(self._with(claim, rules=rest)):
                    yield Said(
                        f"claim {claim.title} without {rule.words}, on {node}",
                        Action.DROP_CONSTRAINT,
                        claim=claim.title,
                        constraint=rule.facts,
                        node=node,
                    )

    def _unbarred(self) -> Iterator[Said]:
        for node, why in islice(self._case.barred.items(), _NODES_TRIED):
            if node in self._case.pools and self._first(self._case, [node]):
                text = f"{node} has what it asks for, but {why}"
                yield Said(text, Action.OPEN_NODE, node=node, obstacles=why.facts["obstacles"])

    def _fewer(self) -> Iterator[Said]:
        """Fewer devices for one request, the most that can be had."""
        for claim in self._case.claims:
            for at, choices in enumerate(claim.requests):
                wanted = choices[-1]
                most = min((wanted.count or 1) - 1, RESULTS_LIMIT)
                for count in range(most, 0, -1):
                    less = (replace(wanted, count=count),)
                    requests = (*claim.requests[:at], less, *claim.requests[at + 1 :])
                    if node := self._first(self._with(claim, requests=requests)):
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


def _end_of(one: Allotment, node: str) -> Said:
    if not one.users:
        text = f"deleting {one.words}, which no pod uses, on {node}"
        return Said(text, Action.DELETE_CLAIM, claim=one.claim.title, node=node)
    deleted = ", which is being deleted"
    ends = ("end" if len(one.users) > 1 else "ends") + deleted * bool(one.ending)
    claim = f"claim {one.claim.title}" + deleted * one.claim.is_deleted
    text = f"when {' and '.join(one.users)} {ends} ({claim}), on {node}"
    return Said(text, Action.PODS_END, claim=one.claim.title, users=one.users, node=node)
