"""What is asked of which nodes, and what it is held against: the case that is explained.

A pod asks for the claims that it names, for one that the scheduler makes for its extended
resources, and for a node that takes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from trio_npu_dra.kit.api.objects import DeviceTaint, FullNode, ObjectMeta
from trio_npu_dra.kit.api.pods import PodClaim
from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.cel.selector import Decide
from trio_npu_dra.tools.cluster.inventory import (
    Allotment,
    ClusterView,
    DeviceId,
    PlacedDevice,
    Taken,
    allotments,
    taken,
)
from trio_npu_dra.tools.cluster.objects import (
    BLOCKING,
    AnyDevice,
    Claim,
    Container,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    Pod,
    ResourceClaimSpec,
    Toleration,
    selects,
    taint_words,
    tolerated,
)
from trio_npu_dra.tools.cluster.pools import NodePool, pools_by_node, quantity_words
from trio_npu_dra.tools.cluster.said import Doubt, Obstacle, OfNode, Said, SaidError, Why

RESULTS_LIMIT = 32
"""Devices in one allocation."""


class ClassMissing(SaidError):
    """A request names a DeviceClass that does not exist."""


@dataclass(frozen=True, slots=True)
class Cel:
    """A selector, and where it stands: `class npu` or `the claim`."""

    origin: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One request or subrequest.

    Attributes:
        name: Of the request.
        sub: Of the subrequest; empty if there are none.
        count: How many devices; None for all that match.
        requests: Amounts of capacities.
    """

    name: str
    sub: str
    class_name: str
    class_selectors: tuple[Cel, ...]
    selectors: tuple[Cel, ...]
    count: int | None
    admin: bool
    tolerations: tuple[Toleration, ...]
    requests: Mapping[str, str]

    @property
    def title(self) -> str:
        """`npu`, or `npu/large` for a subrequest."""
        return f"{self.name}/{self.sub}" if self.sub else self.name

    def is_bound_by(self, rule: DeviceConstraint) -> bool:
        """Whether a constraint is about its devices."""
        return not rule.requests or self.name in rule.requests or self.title in rule.requests

    def untolerated(self, device: AnyDevice) -> list[DeviceTaint]:
        """The taints of a device that keep it away."""
        return [
            taint
            for taint in device.taints
            if taint.effect in BLOCKING and not tolerated(taint, self.tolerations)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedClaim:
    """A claim that is not allocated, in the form in which it is held against devices.

    Attributes:
        claim: The claim.
        requests: For each request the choices it leaves, the first that can be had wins.
    """

    claim: Claim
    requests: tuple[tuple[Wanted, ...], ...]
    rules: tuple[DeviceConstraint, ...]

    @property
    def title(self) -> str:
        """`namespace/name`."""
        return self.claim.title


@dataclass(frozen=True, slots=True)
class Matcher:
    """Answers whether selectors admit devices; *decide* holds each against each device once."""

    decide: Decide
    _known: dict[tuple[str, ...], bool | Exception] = field(default_factory=dict)

    def __call__(self, wanted: Wanted, placed: PlacedDevice) -> bool:
        """Whether all selectors of class and request admit a device.

        Raises:
            SelectorFails: One fails; the message names it and the device.
            Undecided: We cannot tell; the message names the selector.
        """
        return all(self.admits(cel, placed) for cel in (*wanted.class_selectors, *wanted.selectors))

    def admits(self, cel: Cel, placed: PlacedDevice) -> bool:
        """Whether one selector admits a device.

        Raises:
            SelectorFails: It fails.
            Undecided: We cannot tell.
        """
        key = (cel.expression, *placed.id)
        if key not in self._known:
            try:
                self._known[key] = self.decide(cel.expression, placed.id.driver, placed.device)
            except (SelectorFails, Undecided) as error:
                self._known[key] = error
        answer = self._known[key]
        if isinstance(answer, SelectorFails):
            raise SelectorFails(
                f"the selector of {cel.origin} fails for {placed.id.name} of pool "
                f"{placed.id.pool}: {answer}: {cel.expression}"
            ) from answer
        if isinstance(answer, Exception):
            raise Undecided(f"{answer}, in the selector of {cel.origin}") from answer
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is asked of each node, and what it is held against.

    Attributes:
        asked: The claims that are not allocated, by node: where a device plugin has a resource,
            there is no claim for it.
        barred: Why nodes do not take the pod, by name; nodes that take it are absent.
        pools: What each node sees, by its name.
        held: The claims on each device.
        taken: The devices in use.
        matcher: What holds selectors against devices.
        minor: The N of Kubernetes 1.N; None if unknown.
        ignore_taints: Whether all taints of devices count as tolerated.
    """

    asked: Mapping[str, tuple[WantedClaim, ...]]
    barred: Mapping[str, Said]
    pools: Mapping[str, tuple[NodePool, ...]]
    held: Mapping[DeviceId, tuple[Allotment, ...]]
    taken: Taken
    matcher: Matcher
    minor: int | None
    ignore_taints: bool = False

    @property
    def claims(self) -> tuple[WantedClaim, ...]:
        """What is asked of the node that is asked for most."""
        return max(self.asked.values(), key=len, default=())

    @property
    def open(self) -> tuple[str, ...]:
        """The nodes that take the pod."""
        return tuple(node for node in self.pools if node not in self.barred)

    def asking(self, *claims: WantedClaim) -> Case:
        """The case with these claims instead, on all nodes."""
        return replace(self, asked=dict.fromkeys(self.asked, claims))

    def without(self, claims: Collection[str]) -> Case:
        """The case once these claims, by their titles, have ended."""
        held = {
            device: tuple(one for one in held if one.claim.title not in claims)
            for device, held in self.held.items()
        }
        return replace(self, held=held, taken=taken(held))


def case_of(
    pod: Pod | None,
    claims: Sequence[Claim],
    view: ClusterView,
    matcher: Matcher,
    pools: Mapping[str, tuple[NodePool, ...]] | None = None,
) -> Case:
    """The case of a pod with its claims, or of one claim without a pod.

    *pools* are those of each node, if the caller has them already.

    Raises:
        ClassMissing: A DeviceClass does not exist.
        Undecided: A claim asks in a way that this package does not know.
    """
    usage, nodes, held = used(view.pods), view.known_nodes, allotments(view.claims, view.pods or ())
    named = [wanted_claim(one, view.classes) for one in claims if not one.status.allocation]
    asked: dict[str, tuple[WantedClaim, ...]] = {}
    barred: dict[str, Said] = {}
    for node in nodes:
        name, made, found = node.metadata.name, None, list[Said]()
        if pod is not None:
            resources = from_devices(pod, node, view)
            made = claim_for(pod, resources, view.classes)
            if view.nodes is not None:
                found += obstacles(pod, node, usage, resources)
        asked[name] = (*named, *([wanted_claim(made, view.classes)] if made else ()))
        found += _elsewhere(claims, node)
        if found:
            text = "; ".join(found)
            barred[name] = Said(text, OfNode.REFUSED, node=name, obstacles=tuple(found))
    return Case(
        asked=asked,
        barred=barred,
        pools=pools or pools_by_node(nodes, view.slices, minor=view.minor),
        held=held,
        taken=taken(held),
        matcher=matcher,
        minor=view.minor,
    )


# --- what a claim asks for -----------------------------------------------------------------------


def wanted_claim(claim: Claim, classes: Mapping[str, DeviceClass]) -> WantedClaim:
    """A claim in that form.

    Raises:
        ClassMissing: A DeviceClass does not exist; the message names request and class.
        Undecided: It asks in a way that this package does not know.
    """
    rules = claim.spec.devices.constraints
    if any(not rule.match_attribute and rule.distinct_attribute is None for rule in rules):
        raise Undecided("the claim has a constraint of a kind that is not known here")
    requests = []
    for request in claim.spec.devices.requests:
        asks = [("", request.exactly)] if request.exactly is not None else []
        asks += [(sub.name, sub) for sub in request.first_available]
        if not asks:
            raise Undecided(f"request {request.name} is of a kind that is not known here")
        requests.append(tuple(_wanted(request.name, sub, ask, classes) for sub, ask in asks))
    return WantedClaim(claim=claim, requests=tuple(requests), rules=rules)


def _wanted(
    name: str, sub: str, ask: ExactDeviceRequest, classes: Mapping[str, DeviceClass]
) -> Wanted:
    title = f"{name}/{sub}" if sub else name
    class_ = classes.get(ask.device_class_name)
    if class_ is None:
        text = (
            f"request {title}: there is no DeviceClass {ask.device_class_name}; "
            f"those that exist: {', '.join(sorted(classes)) or 'none'}"
        )
        name = ask.device_class_name
        raise ClassMissing(Said(text, Why.CLASS_MISSING, request=title, deviceClass=name))
    if ask.derived_attributes:
        raise Undecided(f"request {title} has derived attributes, which are not known here")
    if ask.allocation_mode not in {"ExactCount", "All"}:
        raise Undecided(f"request {title}: allocationMode {ask.allocation_mode} is not known here")
    return Wanted(
        name=name,
        sub=sub,
        class_name=ask.device_class_name,
        class_selectors=_cel(f"class {ask.device_class_name}", class_.spec.selectors, title),
        selectors=_cel("the claim", ask.selectors, title),
        count=None if ask.allocation_mode == "All" else ask.count,
        admin=bool(ask.admin_access),
        tolerations=ask.tolerations,
        requests=ask.capacity.requests if ask.capacity else {},
    )


def _cel(origin: str, selectors: Sequence[DeviceSelector], title: str) -> tuple[Cel, ...]:
    if any(selector.cel is None for selector in selectors):
        raise Undecided(f"request {title} has a selector that is not CEL")
    return tuple(Cel(origin, one.cel.expression) for one in selectors if one.cel)


# --- the claims of a pod -------------------------------------------------------------------------

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_CONSUMERS_LIMIT = 256
_ZERO_IS_NONE_SINCE = 36
"""The minor version of Kubernetes from which a resource of which a node has 0 is no plugin's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaims:
    """What a pod names.

    Attributes:
        claims: Those that exist.
        missing: Which of its claims does not exist; None if all do.
        problem: Why the scheduler does not even look for devices; None if it does.
    """

    claims: tuple[Claim, ...]
    missing: Said | None = None
    problem: Said | None = None


def claims_of(pod: Pod, view: ClusterView) -> PodClaims:
    """The claims that a pod names."""
    known = {claim.title: claim for claim in view.claims}
    names = pod.claim_names
    found: list[Claim] = []
    missing = problem = None
    for one in pod.spec.resource_claims:
        if one.name not in names:
            continue  # the claim is not needed
        name = names[one.name]
        claim = known.get(f"{pod.metadata.namespace}/{name}") if name else None
        if claim is not None and claim not in found:
            found.append(claim)
        if claim is None:
            missing = missing or _missing(pod, one, name)
        problem = problem or (_problem(pod, one, claim) if claim else missing)
    return PodClaims(claims=tuple(found), missing=missing, problem=problem)


def _missing(pod: Pod, one: PodClaim, name: str | None) -> Said:
    if name is None:
        template = one.resource_claim_template_name
        return Said(
            f"no claim {one.name} has been made of the ResourceClaimTemplate {template} yet: "
            "does the template exist?",
            Why.CLAIM_NOT_MADE,
            template=template,
        )
    text = f"there is no ResourceClaim {name} in namespace {pod.metadata.namespace}"
    return Said(text, Why.CLAIM_MISSING, claim=f"{pod.metadata.namespace}/{name}")


def _problem(pod: Pod, one: PodClaim, claim: Claim) -> Said | None:
    subject = f"claim {claim.title}"
    if claim.metadata.deletion_timestamp:
        return Said(f"{subject} is being deleted", Why.CLAIM_DELETED, claim=claim.title)
    if one.resource_claim_template_name and not _is_owned(claim, pod):
        return Said(f"{subject} was not made for this pod", Why.CLAIM_OF_OTHER, claim=claim.title)
    users = claim.status.reserved_for
    is_full = len(users) >= _CONSUMERS_LIMIT and not pod.may_use(claim.status)
    if claim.status.allocation and is_full:
        text = f"{subject} has {len(users)} users, and no more are allowed"
        return Said(text, Why.CLAIM_FULL, claim=claim.title, pods=len(users))
    return None


def _is_owned(claim: Claim, pod: Pod) -> bool:
    """Whether the claim was made of a template for the pod, or for all pods of its PodGroup.

    A pod does not know the UID of its group (k8s.io/dynamic-resource-allocation, `IsForPod`).
    """
    group = "PodGroup", pod.spec.scheduling_group.pod_group_name
    return any(
        owner.uid == pod.metadata.uid or (owner.kind, owner.name) == group
        for owner in claim.metadata.owner_references
    )


def class_of(resource: str, classes: Mapping[str, DeviceClass]) -> str | None:
    """The DeviceClass that gives an extended resource; None if none does."""
    if resource.startswith(_IMPLICIT):
        name = resource.removeprefix(_IMPLICIT)
        return name if name in classes else None
    names = (name for name, one in classes.items() if one.spec.extended_resource_name == resource)
    return min(names, default=None)


def from_devices(pod: Pod, node: FullNode, view: ClusterView) -> frozenset[str]:
    """The pod's resources that a node gives through DeviceClasses, not through a device plugin."""
    counted = set(node.status.allocatable)
    if view.minor is None or view.minor >= _ZERO_IS_NONE_SINCE:
        counted = {name for name in counted if parse_quantity(node.status.allocatable[name])}
    return frozenset(
        name
        for name in requested(pod)
        if name not in counted and class_of(name, view.classes) is not None
    )


def claim_for(
    pod: Pod, resources: Collection[str], classes: Mapping[str, DeviceClass]
) -> Claim | None:
    """The claim that the scheduler makes for extended resources; None if there are none."""
    requests = []
    for number, container in enumerate((*pod.spec.init_containers, *pod.spec.containers)):
        asked = _asked(container)
        for at, name in enumerate(sorted(set(asked) & set(resources))):
            class_name = class_of(name, classes)
            count = parse_quantity(asked[name])
            if class_name and count:
                ask = ExactDeviceRequest(device_class_name=class_name, count=int(count))
                title = f"container-{number}-request-{at}"
                requests.append(DeviceRequest(name=title, exactly=ask))
    if not requests:
        return None
    return Claim(
        metadata=ObjectMeta(
            name=f"{pod.metadata.name}-extended-resources", namespace=pod.metadata.namespace
        ),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests))),
    )


# --- what else a pod asks of a node --------------------------------------------------------------

_CORDONED = DeviceTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
Amounts = dict[str, Fraction]


def requested(pod: Pod) -> Amounts:
    """What a pod asks a node for: its containers together, or an init container if it needs more.

    Init containers that run on (sidecars) count for all that start after them. Of cpu and memory
    a pod may say itself what all of it needs.
    """
    spec = pod.spec
    beside: Amounts = {}
    starts: list[Amounts] = []
    for one in spec.init_containers:
        starts.append(_sum(beside, _asked(one)))
        if one.restart_policy == "Always":
            beside = starts[-1]
    total = _sum(beside, *(_asked(one) for one in spec.containers))
    for start in starts:
        for name, amount in start.items():
            total[name] = max(total.get(name, Fraction(0)), amount)
    whole = _sum({**spec.resources.limits, **spec.resources.requests})
    return _sum({**total, **whole}, spec.overhead)


def _asked(container: Container) -> Mapping[str, str]:
    """Its requests; a limit without a request is one."""
    return {**container.resources.limits, **container.resources.requests}


def _sum(*parts: Mapping[str, str] | Amounts) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            more = parse_quantity(amount) if isinstance(amount, str) else amount
            total[name] = total.get(name, Fraction(0)) + more
    return total


def used(pods: Iterable[Pod] | None) -> Mapping[str, Amounts] | None:
    """What the pods of each node have requested; None for unknown pods."""
    if pods is None:
        return None
    found: dict[str, Amounts] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.status.has_ended:
            before = found.get(pod.spec.node_name, {})
            found[pod.spec.node_name] = _sum(before, {"pods": Fraction(1)}, requested(pod))
    return found


def obstacles(
    pod: Pod,
    node: FullNode,
    usage: Mapping[str, Amounts] | None,
    from_devices: frozenset[str],
) -> Iterator[Said]:
    """What keeps the pod from a node, as texts about the node.

    *usage* is what pods have of each node, *from_devices* the resources that this node gives
    through DeviceClasses.
    """
    spec = pod.spec
    if node.spec.unschedulable and not tolerated(_CORDONED, spec.tolerations):
        yield Said("is cordoned", Obstacle.CORDONED)
    for taint in node.spec.taints:
        is_said = node.spec.unschedulable and taint.key == _CORDONED.key
        if taint.effect in BLOCKING and not is_said and not tolerated(taint, spec.tolerations):
            text = f"has the taint {taint_words(taint)}, which the pod does not tolerate"
            yield Said(text, Obstacle.NODE_TAINTED, taint=taint)
    labels = node.metadata.labels
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            text = f"is not {key}={value}, as the pod's nodeSelector wants"
            yield Said(text, Obstacle.NODE_SELECTOR, label=key, value=value)
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity and affinity.required and not selects(affinity.required, node):
        yield Said("is not what the pod's node affinity wants", Obstacle.NODE_AFFINITY)
    if usage is not None:
        yield from _lacking(pod, node, usage.get(node.metadata.name, {}), from_devices)


def _lacking(
    pod: Pod, node: FullNode, usage: Amounts, from_devices: frozenset[str]
) -> Iterator[Said]:
    wanted = {"pods": Fraction(1), **requested(pod)}
    for name, amount in wanted.items():
        if name in from_devices or not amount:
            continue
        if name not in node.status.allocatable:
            if name != "pods":
                yield Said(f"has no {name}", Obstacle.RESOURCE_MISSING, resource=name)
            continue
        has = parse_quantity(node.status.allocatable[name])
        left = max(has - usage.get(name, Fraction(0)), Fraction(0))
        if amount > left:
            yield Said(
                f"has {quantity_words(left)} of {quantity_words(has)} {name} left, "
                f"and the pod wants {quantity_words(amount)}",
                Obstacle.RESOURCE_SMALL,
                resource=name,
                left=left,
                total=has,
                wanted=amount,
            )


def _elsewhere(claims: Iterable[Claim], node: FullNode) -> Iterator[Said]:
    """The claims that have devices which the node cannot have."""
    for claim in claims:
        selector = claim.status.allocation.node_selector if claim.status.allocation else None
        if selector is not None and not selects(selector, node):
            text = f"cannot have the devices that claim {claim.title} has"
            yield Said(text, Obstacle.DEVICES_ELSEWHERE, claim=claim.title)


def not_weighed(pod: Pod) -> Iterator[Said]:
    """What the scheduler weighs for this pod, and this package does not."""
    affinity = pod.spec.affinity
    if affinity and (affinity.pod_affinity or affinity.pod_anti_affinity):
        yield Said("the pod's affinity to other pods", Doubt.POD_AFFINITY)
    if pod.spec.topology_spread_constraints:
        yield Said("its topology spread constraints", Doubt.TOPOLOGY_SPREAD)
    if pod.spec.scheduler_name != "default-scheduler":
        name = pod.spec.scheduler_name
        text = f"what its scheduler {name} does differently"
        yield Said(text, Doubt.OTHER_SCHEDULER, scheduler=name)
