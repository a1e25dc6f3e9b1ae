"""Nodes with spec and status."""

from __future__ import annotations

from pydantic import Field

from trio_npu_dra.kit.api.objects import ApiModel, DeviceTaint, Items, Named, Node


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
