"""Whether the pods of a job fit into one super pod, and what is in the way.

The pods are placed one after the other, as the scheduler does, on the nodes of one super pod at a
time, each with the devices that the search finds first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.kit.api.objects import AllocationResult, DeviceAllocation
from trio_npu_dra.tools.cluster.cel import Undecided
from trio_npu_dra.tools.cluster.cel.selector import Decide, matches
from trio_npu_dra.tools.cluster.explain.answer import Explanation, explain_pod
from trio_npu_dra.tools.cluster.explain.case import (
    ClassMissing,
    Matcher,
    case_of,
    claims_of,
    class_of,
    not_weighed,
    requested,
)
from trio_npu_dra.tools.cluster.explain.search import Given, first
from trio_npu_dra.tools.cluster.fleet import NodeRow, fleet
from trio_npu_dra.tools.cluster.inventory import ClusterView
from trio_npu_dra.tools.cluster.objects import (
    Claim,
    ClaimStatus,
    NodeSelector,
    PlacedAllocation,
    Pod,
    Requirement,
    SelectorTerm,
)
from trio_npu_dra.tools.cluster.pools import NodePool, pools_by_node, quantity_words
from trio_npu_dra.tools.cluster.said import Action, Outcome, Said, Why, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperPod:
    """The nodes of one super pod, and what they can do for the job.

    Attributes:
        id: The attribute `superPodId`; None stands for all nodes that are in none.
        nodes: By name.
        placed: How many pods of the job are there.
        fits: For how many more, of those that wait, there is room.
    """

    id: int | None
    nodes: tuple[NodeRow, ...]
    placed: int
    fits: int

    @property
    def pods(self) -> int:
        """How many pods of the job can be there together."""
        return self.placed + self.fits


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplanation:
    """The answer.

    Attributes:
        outcome: `GIVEN` if all pods have nodes, `FREE` if a super pod has room for all, else
            `WAITS`.
        sentence: Why, in one sentence.
        super_pods: By id, the nodes without one last.
        blocked: What is in the way of the first pod for which the super pod with most room has
            none; None if it only has no room for the pods that are elsewhere.
        doubts: What was not weighed.
    """

    outcome: Outcome
    sentence: Said
    super_pods: tuple[SuperPod, ...]
    blocked: Explanation | None = None
    doubts: tuple[Said, ...]


def explain_job(
    pods: Iterable[Pod], view: ClusterView, decide: Decide = matches, *, driver: str
) -> JobExplanation:
    """Whether the job fits into one super pod; *pods* are those that neither end nor have ended.

    Pods that ask for no devices do not count.
    """
    members = [pod for pod in pods if _wants_devices(pod, view)]
    waiting = [_without_gates(pod) for pod in members if not pod.spec.node_name]
    matcher = Matcher(decide)
    found: list[SuperPod] = []
    stops: dict[int | None, tuple[Pod, ClusterView]] = {}
    for id_, nodes in _super_pods(fleet(view, driver)).items():
        names = {node.node for node in nodes}
        placed = sum(pod.spec.node_name in names for pod in members)
        fits, here = 0, _within(view, names)
        pools = pools_by_node(here.known_nodes, here.slices, minor=here.minor)  # for all pods
        for pod in waiting:
            after = _with_placed(pod, here, pools, matcher)
            if after is None:
                stops[id_] = pod, here
                break
            fits, here = fits + 1, after
        found.append(SuperPod(id=id_, nodes=nodes, placed=placed, fits=fits))
    outcome, sentence = _verdict(found, count=len(members), waiting=len(waiting))
    blocked = None
    if outcome is Outcome.WAITS and found and (stop := stops.get(_roomiest(found).id)):
        blocked = _without_own_end(explain_pod(*stop, decide), view)
        outcome = blocked.outcome
    return JobExplanation(
        outcome=outcome,
        sentence=sentence,
        super_pods=tuple(found),
        blocked=blocked,
        doubts=(*view.doubts, *dict.fromkeys(one for pod in waiting for one in not_weighed(pod))),
    )


def _roomiest(found: Sequence[SuperPod]) -> SuperPod:
    return max(found, key=lambda one: (one.pods, one.placed))


def _verdict(found: Sequence[SuperPod], *, count: int, waiting: int) -> tuple[Outcome, Said]:
    if not waiting:
        where = [one for one in found if one.placed]
        text = f"its {counted(count, 'pod')} with devices have nodes {_where(where)}".rstrip()
        ids = [one.id for one in where]
        return Outcome.GIVEN, Said(text, Why.JOB_PLACED, pods=count, superPods=ids)
    if roomy := [one for one in found if one.pods == count]:
        text = f"there is room for its {counted(count, 'pod')} {_where(roomy)}"
        ids = [one.id for one in roomy]
        return Outcome.FREE, Said(text, Why.JOB_FITS, pods=count, superPods=ids)
    if not found:
        text = "no device is published"
        return Outcome.WAITS, Said(text, Why.JOB_TOO_LARGE, pods=count, fits=0, superPod=None)
    most = _roomiest(found)
    text = f"there is no room for its {counted(count, 'pod')} in one super pod"
    if most.pods:
        text += f"; most, {most.pods}, fit {_where([most])}"
    facts = {"pods": count, "fits": most.pods, "superPod": most.id}
    return Outcome.WAITS, Said(text, Why.JOB_TOO_LARGE, **facts)


def _where(super_pods: Iterable[SuperPod]) -> str:
    """`in super pods 3, 7 and outside of super pods`; empty for none."""
    ids = [one.id for one in super_pods]
    numbers = [str(id_) for id_ in ids if id_ is not None]
    inside = [f"in super pod{'s' * (len(numbers) > 1)} {', '.join(numbers)}"] if numbers else []
    return " and ".join((*inside, *(["outside of super pods"] if None in ids else [])))


def _without_own_end(explanation: Explanation, view: ClusterView) -> Explanation:
    """Without the end of claims that have devices only if the job is placed."""
    held = {claim.title for claim in view.claims if claim.status.allocation}
    helps = tuple(
        one
        for one in explanation.helps
        if one.code is not Action.CLAIMS_END
        if one.code not in {Action.PODS_END, Action.DELETE_CLAIM} or one.facts["claim"] in held
    )
    return replace(explanation, helps=helps)


def _wants_devices(pod: Pod, view: ClusterView) -> bool:
    by_resources = any(class_of(name, view.classes) for name in requested(pod))
    return bool(pod.spec.resource_claims) or by_resources


def _without_gates(pod: Pod) -> Pod:
    """The pod as it is once its gates are open: queues and gangs close them for want of room."""
    return pod.model_copy(update={"spec": pod.spec.model_copy(update={"scheduling_gates": ()})})


def _super_pods(nodes: Iterable[NodeRow]) -> Mapping[int | None, tuple[NodeRow, ...]]:
    found: dict[int | None, list[NodeRow]] = {}
    for node in nodes:
        attributes = (row.device.attributes.get(fact_names.SUPER_POD_ID) for row in node.devices)
        id_ = next((one.int_ for one in attributes if one is not None), None)
        found.setdefault(id_, []).append(node)
    return {id_: tuple(found[id_]) for id_ in sorted(found, key=lambda id_: (id_ is None, id_))}


def _within(view: ClusterView, names: set[str]) -> ClusterView:
    """The cluster as if it had these nodes alone."""
    return replace(
        view,
        nodes=tuple(one for one in view.known_nodes if one.metadata.name in names),
        slices=tuple(one for one in view.slices if one.spec.node_name in {None, *names}),
        pods=tuple(one for one in view.pods or () if one.spec.node_name in names),
    )


def _with_placed(
    pod: Pod, view: ClusterView, pools: Mapping[str, tuple[NodePool, ...]], matcher: Matcher
) -> ClusterView | None:
    """The cluster after the pod got its node and devices; None if it has no room for the pod."""
    named = claims_of(pod, view)
    if named.problem:
        return None
    try:
        case = case_of(pod, named.claims, view, matcher, pools)
    except (ClassMissing, Undecided):
        return None
    if (found := first(case)) is None:
        return None
    node, given = found
    placed = pod.model_copy(update={"spec": pod.spec.model_copy(update={"node_name": node})})
    by_claim: dict[int, list[Given]] = {}
    for one in given:
        by_claim.setdefault(one.number, []).append(one)
    claims = {claim.title: claim for claim in view.claims}
    for number, of_claim in by_claim.items():
        claim = case.asked[node][number].claim
        claims[claim.title] = _allocated(claim, node, of_claim)
    return replace(view, pods=(*(view.pods or ()), placed), claims=tuple(claims.values()))


def _allocated(claim: Claim, node: str, given: Iterable[Given]) -> Claim:
    results = tuple(
        AllocationResult(
            request=one.wanted.title,
            driver=one.placed.id.driver,
            pool=one.placed.id.pool,
            device=one.placed.id.name,
            admin_access=one.wanted.admin,
            share_id=None if one.share is None else "planned",
            consumed_capacity={
                name: quantity_words(amount) for name, amount in (one.share or {}).items()
            },
        )
        for one in given
    )
    here = Requirement(key="metadata.name", operator="In", values=(node,))
    allocation = PlacedAllocation(
        devices=DeviceAllocation(results=results),
        node_selector=NodeSelector(node_selector_terms=(SelectorTerm(match_fields=(here,)),)),
    )
    return claim.model_copy(update={"status": ClaimStatus(allocation=allocation)})
