"""The parts of Pods and Events from which the cluster is understood."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trio_npu_dra.kit.api.objects import ApiModel, Items, KubeObject, Named
from trio_npu_dra.tools.cluster.objects import NodeSelector, Toleration


class Resources(ApiModel):
    """resources of a container."""

    requests: Named[str] = Field(default_factory=dict)
    limits: Named[str] = Field(default_factory=dict)


class Container(ApiModel):
    """A container; an init container with *restart_policy* `Always` runs beside the others."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str | None = None


class PodClaim(ApiModel):
    """spec.resourceClaims[]."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class NodeAffinity(ApiModel):
    """affinity.nodeAffinity; what is only preferred does not matter here."""

    required: NodeSelector | None = Field(
        None, alias="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiModel):
    """spec.affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Any = None
    pod_anti_affinity: Any = None


class Gate(ApiModel):
    """spec.schedulingGates[]."""

    name: str


class PodSpec(ApiModel):
    """spec of a Pod."""

    node_name: str | None = None
    scheduler_name: str = "default-scheduler"
    node_selector: Named[str] = Field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: Items[Toleration] = ()
    containers: Items[Container] = ()
    init_containers: Items[Container] = ()
    resources: Resources = Resources()
    overhead: Named[str] = Field(default_factory=dict)
    resource_claims: Items[PodClaim] = ()
    scheduling_gates: Items[Gate] = ()
    topology_spread_constraints: Items[Any] = ()


class PodClaimStatus(ApiModel):
    """status.resourceClaimStatuses[]."""

    name: str
    resource_claim_name: str | None = None


class ExtendedClaimStatus(ApiModel):
    """status.extendedResourceClaimStatus."""

    resource_claim_name: str


class PodStatus(ApiModel):
    """status of a Pod."""

    phase: str = "Pending"
    resource_claim_statuses: Items[PodClaimStatus] = ()
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class Pod(KubeObject):
    """A Pod."""

    group_version = "v1"
    kind_name = "Pod"
    plural = "pods"
    namespaced = True

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def title(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class Involved(ApiModel):
    """involvedObject of an Event."""

    kind: str = ""
    namespace: str | None = None
    name: str = ""
    uid: str | None = None


class SeenEvent(KubeObject):
    """An Event, as any program writes it."""

    group_version = "v1"
    kind_name = "Event"
    plural = "events"
    namespaced = True

    involved_object: Involved = Involved()
    type: str | None = None
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def when(self) -> str:
        """When it was last seen; empty if it does not say."""
        return self.last_timestamp or self.event_time or ""
