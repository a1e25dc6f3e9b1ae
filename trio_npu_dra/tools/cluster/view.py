"""The cluster at one moment, as far as we may read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.kit.api.objects import ObjectMeta
from trio_npu_dra.tools.cluster.objects import AnySlice, Claim, DeviceClass, Pod
from trio_npu_dra.tools.cluster.said import Said


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What the API server has.

    Attributes:
        slices: Of all drivers, with the taints of DeviceTaintRules.
        claims: Of all namespaces.
        classes: DeviceClasses by name.
        nodes: Nodes; None if we may not read them.
        pods: Pods that have not ended; None if we have not asked or may not.
        events: About the explained object.
        doubts: What was not read, and so is not weighed.
        admin_access_allowed: Whether claims in the namespace of the explained object may have
            admin access; None if no claim there wants it, or we may not read the namespace.
        minor: The N of Kubernetes 1.N; None if unknown, judged as 1.37.
    """

    slices: tuple[AnySlice, ...] = ()
    claims: tuple[Claim, ...] = ()
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    nodes: tuple[FullNode, ...] | None = None
    pods: tuple[Pod, ...] | None = None
    events: tuple[Event, ...] = ()
    doubts: tuple[Said, ...] = ()
    admin_access_allowed: bool | None = None
    minor: int | None = None

    @property
    def known_nodes(self) -> tuple[FullNode, ...]:
        """The nodes; if we may not read them, the nodes that slices name."""
        if self.nodes is not None:
            return self.nodes
        names = {slice_.spec.node_name for slice_ in self.slices if slice_.spec.node_name}
        return tuple(FullNode(metadata=ObjectMeta(name=name)) for name in sorted(names))
