"""The parts of API objects that only an explanation needs, and whether they fit to each other.

Devices and slices have the models of `kit.api.objects`. Those of other drivers may be for more than
one node, so here they have the fields that say which; this driver publishes for its own node alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import Field

from trio_npu_dra.kit.api import pods
from trio_npu_dra.kit.api.objects import (
    Allocation,
    ApiModel,
    Device,
    DeviceTaint,
    FullNode,
    Items,
    KubeObject,
    Named,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
    ResourceSliceSpec,
)

ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
"""With the value `true` on a Namespace, its claims may have admin access (Kubernetes 1.34)."""


_IMPLICIT: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that the scheduler makes for limits (Kubernetes 1.34)."""


# --- nodes and pods ------------------------------------------------------------------------------


class Requirement(ApiModel):
    """One line of a node selector."""

    key: str
    operator: str
    values: Items[str] = ()


class SelectorTerm(ApiModel):
    """All lines of a term must hold."""

    match_expressions: Items[Requirement] = ()
    match_fields: Items[Requirement] = ()


class NodeSelector(ApiModel):
    """One of the terms must hold."""

    node_selector_terms: Items[SelectorTerm] = ()


class Toleration(ApiModel):
    """A toleration of a pod, or of a request for devices."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Container(pods.Container):
    """A container; an init container with *restart_policy* `Always` runs beside the others."""

    restart_policy: str | None = None


class NodeAffinity(ApiModel):
    """affinity.nodeAffinity, without what is only preferred."""

    required: NodeSelector | None = Field(
        None, alias="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiModel):
    """spec.affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Any = None
    pod_anti_affinity: Any = None


class SchedulingGate(ApiModel):
    """spec.schedulingGates[]."""

    name: str


class PodSpec(pods.PlacedPodSpec):
    """spec of a Pod."""

    scheduler_name: str = "default-scheduler"
    node_selector: Named[str] = Field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: Items[Toleration] = ()
    containers: Items[Container] = ()
    init_containers: Items[Container] = ()
    resources: pods.ResourceRequirements = Field(default_factory=pods.ResourceRequirements)
    overhead: pods.Quantities = Field(default_factory=dict)
    scheduling_gates: Items[SchedulingGate] = ()
    topology_spread_constraints: Items[Any] = ()


class Pod(pods.PlacedPod):
    """A Pod."""

    spec: PodSpec = Field(default_factory=PodSpec)


class Namespace(KubeObject):
    """A Namespace; only its labels matter here."""

    group_version = "v1"
    kind_name = "Namespace"
    plural = "namespaces"


# --- devices -------------------------------------------------------------------------------------


class AnyDevice(Device):
    """A device of any driver, which may say itself what node it is for."""

    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    binding_conditions: Items[str] = ()


class AnySliceSpec(ResourceSliceSpec):
    """spec of a slice of any driver, which may be for many nodes."""

    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: Items[AnyDevice] = ()


class AnySlice(ResourceSlice):
    """A ResourceSlice of any driver."""

    spec: AnySliceSpec

    @classmethod
    def blank(cls, metadata: ObjectMeta) -> None:
        """None: a slice that cannot be read is an error here; no publisher replaces it."""
        del metadata


class DeviceTaintSelector(ApiModel):
    """spec.deviceSelector; a name that is absent stands for all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiModel):
    """spec of a DeviceTaintRule; without a selector it is for no device."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRule(KubeObject):
    """A taint that an operator puts on devices."""

    group_version = "resource.k8s.io/v1"
    kind_name = "DeviceTaintRule"
    plural = "devicetaintrules"

    spec: DeviceTaintRuleSpec


# --- claims --------------------------------------------------------------------------------------


class CelSelector(ApiModel):
    """selectors[].cel."""

    expression: str


class DeviceSelector(ApiModel):
    """selectors[]; a kind of selector that is not CEL has no *cel*."""

    cel: CelSelector | None = None


class CapacityRequest(ApiModel):
    """capacity of a request."""

    requests: Named[str] = Field(default_factory=dict)


class ExactDeviceRequest(ApiModel):
    """What a request or a subrequest asks for."""

    device_class_name: str
    selectors: Items[DeviceSelector] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: Items[Toleration] = ()
    capacity: CapacityRequest | None = None
    derived_attributes: Items[Any] = ()


class DeviceSubRequest(ExactDeviceRequest):
    """firstAvailable[]."""

    name: str


class DeviceRequest(ApiModel):
    """spec.devices.requests[]: *exactly*, or the first of *first_available* that can be had."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: Items[DeviceSubRequest] = ()


class DeviceConstraint(ApiModel):
    """spec.devices.constraints[]; of all requests if it names none."""

    requests: Items[str] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None

    @property
    def attribute(self) -> str:
        """Its full name."""
        return self.match_attribute or self.distinct_attribute or ""

    @property
    def distinct(self) -> bool:
        """Whether the values must differ, not agree."""
        return self.match_attribute is None

    @property
    def facts(self) -> Mapping[str, str]:
        """As in the claim: `matchAttribute` and the attribute."""
        return {"distinctAttribute" if self.distinct else "matchAttribute": self.attribute}

    @property
    def words(self) -> str:
        """`matchAttribute npu.huawei.com/topologyGroup`."""
        ((name, attribute),) = self.facts.items()
        return f"{name} {attribute}"


class DeviceClaim(ApiModel):
    """spec.devices."""

    requests: Items[DeviceRequest] = ()
    constraints: Items[DeviceConstraint] = ()


class ResourceClaimSpec(ApiModel):
    """spec of a ResourceClaim."""

    devices: DeviceClaim = Field(default_factory=DeviceClaim)


class PlacedAllocation(Allocation):
    """status.allocation, with the nodes that can have the devices."""

    node_selector: NodeSelector | None = None


class ClaimStatus(ResourceClaimStatus):
    """status of a ResourceClaim."""

    allocation: PlacedAllocation | None = None


class Claim(ResourceClaim):
    """A ResourceClaim with its spec, which its author can make large and the daemon ignores."""

    spec: ResourceClaimSpec = Field(default_factory=ResourceClaimSpec)
    status: ClaimStatus = Field(default_factory=ClaimStatus)

    @property
    def title(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def wants_admin_access(self) -> bool:
        """Whether one of its requests is to look on; the API has that in none with subrequests."""
        return any(
            request.exactly is not None and request.exactly.admin_access
            for request in self.spec.devices.requests
        )

    @property
    def pods(self) -> tuple[str, ...]:
        """Names of the pods that may use its devices."""
        return self.status.users("pods")

    @property
    def pod_groups(self) -> tuple[str, ...]:
        """The PodGroups of which all pods may: `PodGroup train`."""
        return tuple(f"PodGroup {name}" for name in self.status.users("podgroups"))

    @property
    def is_deleted(self) -> bool:
        """Whether it is being deleted, which waits for its pods."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_implicit(self) -> bool:
        """Whether the scheduler made it for the limits of a pod, which names no claim then."""
        return _IMPLICIT in self.metadata.annotations


class DeviceClassSpec(ApiModel):
    """spec of a DeviceClass."""

    selectors: Items[DeviceSelector] = ()
    extended_resource_name: str | None = None


class DeviceClass(KubeObject):
    """A DeviceClass."""

    group_version = "resource.k8s.io/v1"
    kind_name = "DeviceClass"
    plural = "deviceclasses"

    spec: DeviceClassSpec = Field(default_factory=DeviceClassSpec)


# --- what fits -----------------------------------------------------------------------------------

BLOCKING = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods away."""


def selects(selector: NodeSelector, node: FullNode) -> bool:
    """Whether one of the terms holds for a node; a term without lines holds for none."""
    labels, fields = node.metadata.labels, {"metadata.name": node.metadata.name}
    return any(
        bool(term.match_expressions or term.match_fields)
        and all(requirement_holds(line, labels) for line in term.match_expressions)
        and all(requirement_holds(line, fields) for line in term.match_fields)
        for term in selector.node_selector_terms
    )


def requirement_holds(line: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether one line holds; an operator that is not known holds for nothing."""
    value = labels.get(line.key)
    match line.operator:
        case "In":
            return value in line.values
        case "NotIn":
            return value not in line.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(line, value)
        case _:
            return False


def _compares(line: Requirement, value: str | None) -> bool:
    try:
        number, bound = int(value or ""), int(line.values[0] if line.values else "")
    except ValueError:
        return False
    return number > bound if line.operator == "Gt" else number < bound


def tolerated(taint: DeviceTaint, tolerations: Iterable[Toleration]) -> bool:
    """Whether one of the tolerations is for the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == (taint.value or "")


def taint_words(taint: DeviceTaint) -> str:
    """A taint as kubectl has it: `npu.huawei.com/fault=SeparateNPU:NoExecute`."""
    key = f"{taint.key}={taint.value}" if taint.value else taint.key
    return f"{key}:{taint.effect}"
