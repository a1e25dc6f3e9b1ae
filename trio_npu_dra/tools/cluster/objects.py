"""The parts of API objects from which the cluster is understood, for any DRA driver.

Names follow resource.k8s.io/v1 and v1. All is read, nothing is written. What `api.objects` has in
the same form is taken from there. What differs is not: the driver's models have the fields that it
writes, always with a value, and other drivers' devices and policies have others or leave some out.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from trio_npu_dra.kit.api.objects import (
    AllocationResult,
    ApiModel,
    Consumer,
    CounterSet,
    DeviceCounterConsumption,
    DeviceTaint,
    Items,
    KubeObject,
    Named,
    ObjectMeta,
    ResourcePool,
)

ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
"""With the value `true` on a Namespace, its claims may have admin access (Kubernetes 1.34)."""

# --- nodes and namespaces ------------------------------------------------------------------------


class Namespace(KubeObject):
    """A Namespace; only its labels matter here."""

    group_version = "v1"
    kind_name = "Namespace"
    plural = "namespaces"


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


class Taint(ApiModel):
    """A taint on a Node."""

    key: str
    value: str | None = None
    effect: str


class Toleration(ApiModel):
    """A toleration of a pod, or of a request for devices."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(ApiModel):
    """spec of a Node."""

    unschedulable: bool = False
    taints: Items[Taint] = ()


class NodeStatus(ApiModel):
    """status of a Node."""

    allocatable: Named[str] = Field(default_factory=dict)


class ClusterNode(KubeObject):
    """A Node."""

    group_version = "v1"
    kind_name = "Node"
    plural = "nodes"

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# --- devices -------------------------------------------------------------------------------------


class Attribute(ApiModel):
    """An attribute of a device; one field is set, a list only where the alpha feature is on."""

    string: str | None = None
    int_: int | None = Field(None, alias="int")
    bool_: bool | None = Field(None, alias="bool")
    version: str | None = None
    strings: Items[str] | None = None
    ints: Items[int] | None = None
    bools: Items[bool] | None = None
    versions: Items[str] | None = None

    @property
    def value(self) -> str | int | bool | None:
        """The one value; None for a list."""
        found = (self.string, self.int_, self.bool_, self.version)
        return next((value for value in found if value is not None), None)


class CapacityRange(ApiModel):
    """requestPolicy.validRange."""

    min: str | None = None
    max: str | None = None
    step: str | None = None


class CapacityPolicy(ApiModel):
    """requestPolicy of a capacity."""

    default: str | None = None
    valid_values: Items[str] | None = None
    valid_range: CapacityRange | None = None


class Capacity(ApiModel):
    """A capacity of a device."""

    value: str
    request_policy: CapacityPolicy | None = None


class Consumption(DeviceCounterConsumption):
    """spec.devices[].consumesCounters[].

    Attributes:
        compatibility_groups: Of an alpha feature that this package does not weigh.
    """

    compatibility_groups: Items[str] | None = None


class Device(ApiModel):
    """spec.devices[] of a slice."""

    name: str
    attributes: Named[Attribute] = Field(default_factory=dict)
    capacity: Named[Capacity] = Field(default_factory=dict)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    allow_multiple_allocations: bool | None = None
    consumes_counters: Items[Consumption] = ()
    taints: Items[DeviceTaint] = ()
    binding_conditions: Items[str] | None = None


class SliceSpec(ApiModel):
    """spec of a ResourceSlice."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: Items[Device] = ()
    shared_counters: Items[CounterSet] = ()


class Slice(KubeObject):
    """A ResourceSlice of any driver."""

    group_version = "resource.k8s.io/v1"
    kind_name = "ResourceSlice"
    plural = "resourceslices"

    spec: SliceSpec


class DeviceTaintRule(KubeObject):
    """A rule that taints devices; only whether there are any is asked."""

    group_version = "resource.k8s.io/v1"
    kind_name = "DeviceTaintRule"
    plural = "devicetaintrules"


# --- claims --------------------------------------------------------------------------------------


class CelSelector(ApiModel):
    """selectors[].cel."""

    expression: str


class Selector(ApiModel):
    """selectors[]; a kind of selector that is not CEL has no *cel*."""

    cel: CelSelector | None = None


class CapacityRequest(ApiModel):
    """capacity of a request."""

    requests: Named[str] = Field(default_factory=dict)


class Ask(ApiModel):
    """What a request or a subrequest asks for."""

    device_class_name: str
    selectors: Items[Selector] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: Items[Toleration] = ()
    capacity: CapacityRequest | None = None
    derived_attributes: Items[Any] = ()


class SubRequest(Ask):
    """firstAvailable[]."""

    name: str


class Request(ApiModel):
    """spec.devices.requests[]: *exactly*, or the first of *first_available* that can be had."""

    name: str
    exactly: Ask | None = None
    first_available: Items[SubRequest] = ()


class Constraint(ApiModel):
    """spec.devices.constraints[]; of all requests if it names none."""

    requests: Items[str] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimDevices(ApiModel):
    """spec.devices."""

    requests: Items[Request] = ()
    constraints: Items[Constraint] = ()


class ClaimSpec(ApiModel):
    """spec of a ResourceClaim."""

    devices: ClaimDevices = ClaimDevices()


class Result(AllocationResult):
    """status.allocation.devices.results[], with what it takes of capacities."""

    consumed_capacity: Named[str] | None = None


class Results(ApiModel):
    """status.allocation.devices."""

    results: Items[Result] = ()


class Allocation(ApiModel):
    """status.allocation."""

    devices: Results = Results()
    node_selector: NodeSelector | None = None


class ClaimStatus(ApiModel):
    """status of a ResourceClaim."""

    allocation: Allocation | None = None
    reserved_for: Items[Consumer] = ()


class ClaimMeta(ObjectMeta):
    """metadata of a ResourceClaim."""

    deletion_timestamp: str | None = None


class Claim(KubeObject):
    """A ResourceClaim with its spec."""

    group_version = "resource.k8s.io/v1"
    kind_name = "ResourceClaim"
    plural = "resourceclaims"
    namespaced = True

    metadata: ClaimMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

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
    def uid(self) -> str:
        """Its UID; a claim that is only thought of has none."""
        return self.metadata.uid or self.title


class ClassSpec(ApiModel):
    """spec of a DeviceClass."""

    selectors: Items[Selector] = ()
    extended_resource_name: str | None = None


class DeviceClass(KubeObject):
    """A DeviceClass."""

    group_version = "resource.k8s.io/v1"
    kind_name = "DeviceClass"
    plural = "deviceclasses"

    spec: ClassSpec = ClassSpec()
