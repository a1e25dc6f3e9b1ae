"""The parts of Kubernetes API objects that this package reads and writes, as in resource.k8s.io/v1.

Unknown fields are ignored when read, so that a newer API server is no error; absent fields stay
absent when written. What only few programs need is elsewhere: the daemon loads this at its start.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool
from pydantic.alias_generators import to_camel

T = TypeVar("T")

_ENTRIES_LIMIT = 1000


def _listed(value: Any) -> Any:
    return () if value is None else value


def _few(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > _ENTRIES_LIMIT:
        raise ValueError(f"has {len(value)} entries, at most {_ENTRIES_LIMIT} are read")
    return {} if value is None else value


# Each wrong item costs an error object, so their number has a limit. Older versions of pydantic
# cannot end a dict at its first error. Go writes an empty list without `omitempty` as null.
Items = Annotated[tuple[T, ...], Field(fail_fast=True), BeforeValidator(_listed)]
"""A list, read up to its first wrong item."""
Named = Annotated[dict[str, T], BeforeValidator(_few)]
"""An object whose owner chooses the keys; labels, attributes and the like are a few dozen."""


def rfc3339(seconds: float) -> str:
    """A moment, in seconds since 1970, as API objects have times: UTC, in whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ApiModel(BaseModel):
    """Base of all parts: frozen, camelCase on the wire, unknown fields ignored.

    A class is built when it is first used, so a default that is a model has a factory: a daemon's
    start needs a third of them.
    """

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    def to_wire(self) -> dict[str, Any]:
        """The JSON form, without absent fields: each default stands for an absent field."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


class OwnerReference(ApiModel):
    """metadata.ownerReferences[]."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class ObjectMeta(ApiModel):
    """metadata."""

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: str | None = None
    labels: Named[str] = Field(default_factory=dict)
    annotations: Named[str] = Field(default_factory=dict)
    finalizers: Items[str] = ()
    owner_references: Items[OwnerReference] = ()


class KubeObject(ApiModel):
    """An object with its REST coordinates.

    Attributes:
        group_version: `v1` for the core group, else `group/version`.
        plural: The resource name in URLs.
        namespaced: Whether the URL has a namespace.
        metadata_only: Whether pages of it are asked for metadata alone.
    """

    group_version: ClassVar[str]
    kind_name: ClassVar[str]
    plural: ClassVar[str]
    namespaced: ClassVar[bool] = False
    metadata_only: ClassVar[bool] = False

    metadata: ObjectMeta

    def to_wire(self) -> dict[str, Any]:
        """The JSON form with apiVersion and kind, without absent fields."""
        return {
            "apiVersion": self.group_version,
            "kind": self.kind_name,
            **super().to_wire(),
        }

    def with_metadata(self, metadata: ObjectMeta) -> Self:
        """A copy with other metadata."""
        return self.model_copy(update={"metadata": metadata})

    @classmethod
    def blank(cls, metadata: ObjectMeta) -> Self | None:
        """What replaces a stored object whose other parts are not understood; None is an error."""
        del metadata
        return None


class Node(KubeObject):
    """A Node, of its metadata; `nodes.FullNode` has the rest."""

    group_version = "v1"
    kind_name = "Node"
    plural = "nodes"


# --- ResourceSlice -------------------------------------------------------------------------------


class SlicePart(ApiModel):
    """Base of the parts that are compared with what is stored.

    Fields that this driver does not know pass through unchanged, so that a value written into one
    by hand shows as a difference.
    """

    model_config = ConfigDict(extra="allow")


class DeviceAttribute(SlicePart):
    """An attribute; one of the four fields is set, none if it is a list (an alpha feature)."""

    string: str | None = None
    int_: int | None = None
    bool_: StrictBool | None = None
    version: str | None = None

    model_config = ConfigDict(
        frozen=True,
        alias_generator=lambda name: to_camel(name.rstrip("_")),
        populate_by_name=True,
    )

    @property
    def value(self) -> str | int | bool | None:
        """The one value; None for a list."""
        found = (self.string, self.int_, self.bool_, self.version)
        return next((value for value in found if value is not None), None)


class CapacityRange(SlicePart):
    """requestPolicy.validRange: a request is rounded up to *min*, or to a step above it."""

    min: str | None = None
    max: str | None = None
    step: str | None = None


class CapacityPolicy(SlicePart):
    """requestPolicy of a capacity: *default* is for a request that does not name the capacity."""

    default: str | None = None
    valid_values: Items[str] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(SlicePart):
    """A quantity in Kubernetes' canonical form (`32Gi`, `20`).

    Attributes:
        request_policy: Only where the device may be allocated several times; without one, an
            allocation that does not name the capacity takes all of it.
    """

    value: str
    request_policy: CapacityPolicy | None = None


class DeviceTaint(SlicePart):
    """A taint on one device.

    Attributes:
        time_added: RFC 3339; the API server fills it in when absent, and keeps whole seconds.
    """

    key: str
    value: str | None = None
    effect: str
    time_added: str | None = None


class Counter(SlicePart):
    """A quantity in Kubernetes' canonical form; its name is a DNS label (`ai-cores`)."""

    value: str


class CounterSet(SlicePart):
    """spec.sharedCounters[]: amounts that several devices of the pool take from."""

    name: str
    counters: Named[Counter]


class DeviceCounterConsumption(SlicePart):
    """spec.devices[].consumesCounters[]: what a device takes from one counter set."""

    counter_set: str
    counters: Named[Counter]
    compatibility_groups: Items[str] = ()  # of an alpha feature; this driver has none


class Device(SlicePart):
    """spec.devices[] of a ResourceSlice."""

    name: str
    attributes: Named[DeviceAttribute] = Field(default_factory=dict)
    capacity: Named[DeviceCapacity] = Field(default_factory=dict)
    allow_multiple_allocations: StrictBool | None = None
    consumes_counters: Items[DeviceCounterConsumption] = ()
    taints: Items[DeviceTaint] = ()


class ResourcePool(ApiModel):
    """spec.pool of a ResourceSlice."""

    name: str
    generation: int
    resource_slice_count: int


class ResourceSliceSpec(ApiModel):
    """spec of a ResourceSlice; from Kubernetes 1.35 with devices or shared counters, not both."""

    driver: str
    node_name: str | None = None
    pool: ResourcePool
    devices: Items[Device] = ()
    shared_counters: Items[CounterSet] = ()


class ResourceSlice(KubeObject):
    """A part of a pool of devices."""

    group_version = "resource.k8s.io/v1"
    kind_name = "ResourceSlice"
    plural = "resourceslices"

    spec: ResourceSliceSpec

    @classmethod
    def blank(cls, metadata: ObjectMeta) -> Self | None:
        """A slice of no pool and no driver, which a publisher replaces."""
        pool = ResourcePool(name="", generation=0, resource_slice_count=0)
        return cls(metadata=metadata, spec=ResourceSliceSpec(driver="", pool=pool))


# --- ResourceClaim -------------------------------------------------------------------------------


class OpaqueConfiguration(ApiModel):
    """Parameters for one driver; the API server does not look inside."""

    driver: str
    parameters: Any = None


class AllocationConfiguration(ApiModel):
    """status.allocation.devices.config[]: *source* is `FromClass` or `FromClaim`."""

    source: str
    requests: Items[str] = ()
    opaque: OpaqueConfiguration | None = None


class AllocationResult(ApiModel):
    """status.allocation.devices.results[]: one device given to one request.

    *request* may be `<request>/<subrequest>`.
    """

    request: str
    driver: str
    pool: str
    device: str
    admin_access: StrictBool | None = None
    share_id: str | None = Field(None, alias="shareID")
    consumed_capacity: Named[str] = Field(default_factory=dict)


class DeviceAllocation(ApiModel):
    """status.allocation.devices."""

    results: Items[AllocationResult] = ()
    config: Items[AllocationConfiguration] = ()


class Allocation(ApiModel):
    """status.allocation."""

    devices: DeviceAllocation = Field(default_factory=DeviceAllocation)


class Consumer(ApiModel):
    """status.reservedFor[]: a user of the claim.

    A pod (*resource* `pods`) or, with the feature gate DRAWorkloadResourceClaims, every pod of a
    PodGroup (`podgroups`).
    """

    resource: str
    name: str
    uid: str


class Condition(ApiModel):
    """A condition: *status* is `True`, `False` or `Unknown`, *last_transition_time* since when."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NetworkDeviceData(ApiModel):
    """networkData of a device; an address of *ips* has its prefix: `10.20.0.13/24`."""

    interface_name: str | None = None
    ips: Items[str] = ()
    hardware_address: str | None = None


class DeviceStatus(ApiModel):
    """status.devices[]: what its driver says of an allocated device.

    Attributes:
        share_id: Where the allocation has one.
        data: Of the driver's own form.
    """

    driver: str
    pool: str
    device: str
    share_id: str | None = Field(None, alias="shareID")
    conditions: Items[Condition] = ()
    network_data: NetworkDeviceData | None = None
    data: Any = None


class ResourceClaimStatus(ApiModel):
    """status of a ResourceClaim."""

    allocation: Allocation | None = None
    reserved_for: Items[Consumer] = ()
    devices: Items[DeviceStatus] = ()

    def users(self, resource: str) -> tuple[str, ...]:
        """The names of those users that are `pods`, or `podgroups`."""
        return tuple(one.name for one in self.reserved_for if one.resource == resource)


class ResourceClaim(KubeObject):
    """A claim on devices, allocated by the scheduler."""

    group_version = "resource.k8s.io/v1"
    kind_name = "ResourceClaim"
    plural = "resourceclaims"
    namespaced = True

    status: ResourceClaimStatus = Field(default_factory=ResourceClaimStatus)


class NodeSpec(ApiModel):
    """spec of a Node; its taints have the fields of those of devices."""

    unschedulable: bool = False
    taints: Items[DeviceTaint] = ()


class NodeInfo(ApiModel):
    """status.nodeInfo: versions of what runs on the node, as `v1.36.3`, `containerd://2.1.6`."""

    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(ApiModel):
    """status of a Node."""

    allocatable: Named[str] = Field(default_factory=dict)
    node_info: NodeInfo = Field(default_factory=NodeInfo)


class FullNode(Node):
    """A Node as a whole."""

    spec: NodeSpec = Field(default_factory=NodeSpec)
    status: NodeStatus = Field(default_factory=NodeStatus)
