"""Objects that are written by server-side apply: parts of them are ours, the rest is not touched.

The API server keeps who wrote which field, by the name of a *manager*. What a manager applied once
and leaves out the next time is removed, unless somebody else has written it too.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trio_npu_dra.kit.api.objects import ApiModel, Items, KubeObject, Named, ObjectMeta


class ManagedFields(ApiModel):
    """metadata.managedFields[]: the fields that one manager wrote, as nested keys `f:<name>`."""

    manager: str = ""
    operation: str = ""
    fields: Any = Field(None, alias="fieldsV1")


class ManagedMeta(ObjectMeta):
    """metadata, with who wrote what."""

    managed_fields: Items[ManagedFields] | None = None

    def applied_by(self, manager: str, part: str) -> frozenset[str]:
        """The keys of `labels` or `annotations` that a manager has applied."""
        found: set[str] = set()
        for one in self.managed_fields or ():
            if (one.manager, one.operation) == (manager, "Apply"):
                fields = one.fields
                for step in ("f:metadata", f"f:{part}"):
                    fields = fields.get(step) if isinstance(fields, dict) else None
                found |= {key.removeprefix("f:") for key in fields or () if key != "."}
        return frozenset(found)


class ManagedNode(KubeObject):
    """A Node whose labels and annotations several write."""

    group_version = "v1"
    kind_name = "Node"
    plural = "nodes"

    metadata: ManagedMeta


class ConfigMap(KubeObject):
    """Texts by name."""

    group_version = "v1"
    kind_name = "ConfigMap"
    plural = "configmaps"
    namespaced = True

    data: Named[str] | None = None


class PodMeta(ObjectMeta):
    """metadata of a pod, which may be ending."""

    deletion_timestamp: str | None = None


class ContainerResources(ApiModel):
    """resources of a container; quantities are texts, or numbers as people wrote them."""

    limits: Named[Any] | None = None


class Container(ApiModel):
    """spec.containers[] and spec.initContainers[]."""

    resources: ContainerResources | None = None


class PodSpec(ApiModel):
    """spec of a pod."""

    containers: Items[Container] = ()
    init_containers: Items[Container] = ()


class PodStatus(ApiModel):
    """status of a pod."""

    phase: str | None = None


class PodMetadata(KubeObject):
    """A pod without spec and status, which its author can make large."""

    group_version = "v1"
    kind_name = "Pod"
    plural = "pods"
    namespaced = True
    metadata_only = True

    metadata: PodMeta


class Pod(KubeObject):
    """A pod, as far as it tells how many devices its containers want."""

    group_version = "v1"
    kind_name = "Pod"
    plural = "pods"
    namespaced = True

    metadata: PodMeta
    spec: PodSpec | None = None
    status: PodStatus | None = None
