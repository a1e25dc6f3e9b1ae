"""Pods: their metadata, what their containers ask for, and which node and claims they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from trio_npu_dra.kit.api.objects import (
    ApiModel,
    Items,
    KubeObject,
    Named,
    ResourceClaimStatus,
)

Quantities = Named[Annotated[str, Field(coerce_numbers_to_str=True)]]
"""Quantities by resource; people may write numbers."""


class ResourceRequirements(ApiModel):
    """resources of a container, or of a whole pod."""

    requests: Quantities = Field(default_factory=dict)
    limits: Quantities = Field(default_factory=dict)


class Container(ApiModel):
    """A container."""

    resources: ResourceRequirements = Field(default_factory=ResourceRequirements)


class PodSpec(ApiModel):
    """spec of a Pod."""

    containers: Items[Container] = ()
    init_containers: Items[Container] = ()


class PodMetadata(KubeObject):
    """A pod without spec and status, which its author can make large."""

    group_version = "v1"
    kind_name = "Pod"
    plural = "pods"
    namespaced = True
    metadata_only = True


class Pod(PodMetadata):
    """A Pod with its containers."""

    metadata_only = False

    spec: PodSpec = Field(default_factory=PodSpec)


# --- what the daemon does not read ----------------------------------------------------------------


class PodClaim(ApiModel):
    """spec.resourceClaims[]."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(ApiModel):
    """spec.schedulingGroup (scheduling.k8s.io/v1beta1, Kubernetes 1.37)."""

    pod_group_name: str | None = None


class PlacedPodSpec(PodSpec):
    """spec of a Pod, with its node, its name in the cluster's DNS, and its claims."""

    node_name: str | None = None
    hostname: str | None = None
    resource_claims: Items[PodClaim] = ()
    scheduling_group: SchedulingGroup = Field(default_factory=SchedulingGroup)


class PodClaimStatus(ApiModel):
    """status.resourceClaimStatuses[]: the claim made of a template, None if none is needed."""

    name: str
    resource_claim_name: str | None = None


class ExtendedClaimStatus(ApiModel):
    """status.extendedResourceClaimStatus."""

    resource_claim_name: str


class PodStatus(ApiModel):
    """status of a Pod."""

    phase: str = "Pending"
    pod_ip: str | None = Field(None, alias="podIP")
    host_ip: str | None = Field(None, alias="hostIP")
    resource_claim_statuses: Items[PodClaimStatus] = ()
    extended_resource_claim_status: ExtendedClaimStatus | None = None

    @property
    def has_ended(self) -> bool:
        """Whether its containers have ended for good."""
        return self.phase in {"Succeeded", "Failed"}


class PlacedPod(Pod):
    """A Pod with its place and claims; `tools.cluster.objects` has what else schedulers read."""

    spec: PlacedPodSpec = Field(default_factory=PlacedPodSpec)
    status: PodStatus = Field(default_factory=PodStatus)

    @property
    def title(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def claim_names(self) -> Mapping[str, str | None]:
        """The claims that it needs, by what it calls them; None: not made of its template yet."""
        made = {one.name: one.resource_claim_name for one in self.status.resource_claim_statuses}
        return {
            one.name: one.resource_claim_name or made.get(one.name)
            for one in self.spec.resource_claims
            if one.resource_claim_name or made.get(one.name) or one.name not in made
        }

    def may_use(self, claim: ResourceClaimStatus) -> bool:
        """Whether a claim is reserved for this very pod, or for its group, whose UID it lacks."""
        is_of_group = self.spec.scheduling_group.pod_group_name in claim.users("podgroups")
        return is_of_group or self.metadata.uid in {user.uid for user in claim.reserved_for}
