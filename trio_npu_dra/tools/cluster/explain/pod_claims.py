"""The claims of a pod: those that it names, and the one for resources that DeviceClasses give."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.kit.api.objects import ObjectMeta
from trio_npu_dra.kit.api.pods import PodClaim
from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.tools.cluster.explain.pod_fit import requested
from trio_npu_dra.tools.cluster.inventory import ClusterView
from trio_npu_dra.tools.cluster.objects import (
    Claim,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    Pod,
    ResourceClaimSpec,
)
from trio_npu_dra.tools.cluster.said import Said, Why

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_CONSUMERS_LIMIT = 256
_ZERO_IS_NONE_SINCE = 36
"""The minor version of Kubernetes from which a resource of which a node has 0 is no plugin's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaims:
    """What a pod names.

    Attributes:
        claims: Those that exist, by what the pod calls them.
        missing: Which of its claims does not exist; None if all do.
        problem: Why the scheduler does not even look for devices; None if it does.
    """

    claims: Mapping[str, Claim]
    missing: Said | None = None
    problem: Said | None = None


def claims_of(pod: Pod, view: ClusterView) -> PodClaims:
    """The claims that a pod names."""
    known = {claim.title: claim for claim in view.claims}
    names = pod.claim_names
    found: dict[str, Claim] = {}
    missing = problem = None
    for one in pod.spec.resource_claims:
        if one.name not in names:
            continue  # the claim is not needed
        name = names[one.name]
        claim = known.get(f"{pod.metadata.namespace}/{name}") if name else None
        if claim is not None and claim not in found.values():
            found[one.name] = claim
        if claim is None:
            missing = missing or _missing(pod, one, name)
        problem = problem or (_problem(pod, one, claim) if claim else missing)
    return PodClaims(claims=found, missing=missing, problem=problem)


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
        asked = {**container.resources.limits, **container.resources.requests}
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
