"""Tells Volcano and MindCluster which chips the node has in device plugin resources.

All is applied under a field manager of its own (`report.labelled_node`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NoReturn

import trio

from trio_npu_dra.agent.device_plugin.device import DevicesByResource
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.agent.mindcluster.device_info import config_map, content
from trio_npu_dra.agent.mindcluster.node_facts import (
    ACCELERATOR_TYPE,
    SERVER_TYPE,
    node_annotations,
    node_labels,
    usual_chips,
)
from trio_npu_dra.agent.report.labelled_node import RETRY_LIMIT, NodeLabels, keep_node
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.retry import Retry
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import KubeError
from trio_npu_dra.kit.base.observable import Observable, derive

log = logging.getLogger(__name__)

MANAGER: Final = "trio-npu-dra-mindcluster"
"""The field manager."""

LOOK_SECONDS: Final = 300.0
"""Between two checks whether the Node was edited."""

PAUSE_SECONDS: Final = 1.0
"""Between two writes of the ConfigMap, at least."""

FRESH_SECONDS: Final = 290.0
"""Between two writes of the ConfigMap, at most: readers expect one every five minutes."""

_UNFORCED: Final = frozenset({SERVER_TYPE, ACCELERATOR_TYPE})  # stay as other writers set them
_STUCK_SECONDS: Final = 60.0


async def follow_mindcluster(
    client: KubeClient,
    resources: Observable[DevicesByResource],
    holds: Observable[tuple[Hold, ...]],
    node_name: str,
) -> NoReturn:
    """Keep Node and ConfigMap right, until cancelled.

    A node gets no ConfigMap before it has chips in a resource. Parts of chips are not Volcano's.
    """
    facts = Observable(NodeLabels())
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
        nursery.start_soon(
            partial(
                keep_node,
                client,
                facts,
                node_name=node_name,
                manager=MANAGER,
                unforced=_UNFORCED,
                look_seconds=LOOK_SECONDS,
            )
        )
        await keep_device_info(client, told, node_name=node_name)


async def keep_device_info(
    client: KubeClient,
    told: Observable[Mapping[str, Any] | None],
    *,
    node_name: str,
    clock: Callable[[], float] = time.time,
) -> NoReturn:
    """Keep the ConfigMap right and fresh, until cancelled.

    It needs `create` and `patch` on that ConfigMap. *told* is its `device_info.content`, None as
    long as there is none; *clock* tells seconds since 1970.
    """
    retry = Retry("telling the devices", log, limit=RETRY_LIMIT)
    updated_at = 0
    while True:
        written = await told.wait_until(lambda now: now is not None)
        assert written is not None
        # Of two writes in one second Volcano would not read the later one.
        updated_at = max(int(clock()), updated_at + 1)
        try:
            with watchdog.step("telling the devices", limit=_STUCK_SECONDS):
                whole = config_map(written, node_name=node_name, updated_at=updated_at)
                await client.apply(whole, manager=MANAGER)
        except KubeError as error:
            await trio.sleep(max(PAUSE_SECONDS, retry.failed(error)))
            continue
        retry.recovered()
        began = trio.current_time()
        with trio.move_on_at(began + FRESH_SECONDS):
            await told.wait_for_other(written)
        await trio.sleep_until(began + PAUSE_SECONDS)
