"""Tells Volcano and MindCluster which chips the node has in device plugin resources."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

import trio

from trio_npu_dra.agent.device_plugin.device import DevicesByResource
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.agent.mindcluster.device_info import content
from trio_npu_dra.agent.mindcluster.device_info_writer import keep_device_info
from trio_npu_dra.agent.mindcluster.node_facts import node_annotations, node_labels, usual_chips
from trio_npu_dra.agent.mindcluster.node_writer import NodeLabels, keep_node
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.base.observable import Observable, derive


async def follow_mindcluster(
    client: KubeClient,
    resources: Observable[DevicesByResource],
    holds: Observable[tuple[Hold, ...]],
    node_name: str,
) -> NoReturn:
    """Keep Node and ConfigMap right, until cancelled.

    A node gets no ConfigMap before it has chips in a resource. Parts of chips are not Volcano's.
    """
    facts = Observable(NodeLabels(labels={}, annotations={}))
    told: Observable[Mapping[str, Any] | None] = Observable(None)

    def whole_chips() -> dict[str, tuple[Chip, ...]]:
        return {
            resource: tuple(one.chip for one in devices if one.part is None)
            for resource, devices in resources.value.items()
        }

    def wanted() -> NodeLabels:
        chips = usual_chips(whole_chips())
        return NodeLabels(labels=node_labels(chips), annotations=node_annotations(chips))

    def to_tell() -> Mapping[str, Any] | None:
        if told.value is None and not resources.value:
            return None
        used = {node for hold in holds.value if not hold.observer for node in hold.nodes}
        return content(whole_chips(), used)

    async with trio.open_nursery() as nursery:
        await nursery.start(derive, facts, wanted, resources)
        await nursery.start(derive, told, to_tell, resources, holds)
        nursery.start_soon(partial(keep_device_info, client, told, node_name=node_name))
        await keep_node(client, facts, node_name=node_name)
