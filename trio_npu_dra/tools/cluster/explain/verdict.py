"""Why a pod or a claim waits, or why it got what it got."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.tools.cluster.cel.selector import Decide, matches
from trio_npu_dra.tools.cluster.explain.case import Case
from trio_npu_dra.tools.cluster.explain.explanation import (
    ClaimReport,
    Explanation,
    answer,
    given_report,
    latest_events,
    published,
)
from trio_npu_dra.tools.cluster.explain.matcher import Matcher
from trio_npu_dra.tools.cluster.explain.pod_claims import PodClaims, claims_of
from trio_npu_dra.tools.cluster.explain.words import event_words
from trio_npu_dra.tools.cluster.inventory import ClusterView
from trio_npu_dra.tools.cluster.objects import Claim, ClaimStatus, Pod
from trio_npu_dra.tools.cluster.said import Outcome, Said, Why


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
