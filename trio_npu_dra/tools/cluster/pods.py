"""Pods as schedulers read them: where they may run, and which claims they have."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trio_npu_dra.kit.api import pods
from trio_npu_dra.kit.api.objects import ApiModel, Items, Named


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
