"""Pods: their metadata, and what their containers ask for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trio_npu_dra.kit.api.objects import ApiModel, Items, KubeObject, Named

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
    """A Pod; `tools.cluster.pods` has what else schedulers read of it."""

    metadata_only = False

    spec: PodSpec = Field(default_factory=PodSpec)
