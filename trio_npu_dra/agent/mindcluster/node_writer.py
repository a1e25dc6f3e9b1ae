"""Keeps the labels and annotations of the Node in line with its chips.

They are applied under a field manager of their own, so that the API server knows which are ours: it
removes those that we apply no more, and keeps those of other writers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import trio

from trio_npu_dra.agent.mindcluster.node_facts import ACCELERATOR_TYPE, SERVER_TYPE
from trio_npu_dra.kit.api.applied import ManagedMeta, ManagedNode
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.retry import Retry
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import KubeError
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

MANAGER: Final = "trio-npu-dra-mindcluster"
"""The field manager."""

LOOK_SECONDS: Final = 300.0
"""Between two checks whether the Node was edited."""

RETRY_LIMIT: Final = 60.0
"""Seconds between two tries, at most: a node that lacks the rights tries for ever."""

_OTHERS: Final = frozenset(
    {SERVER_TYPE, ACCELERATOR_TYPE}
)  # labels that stay as they are where other writers set them
_STUCK_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabels:
    """Labels and annotations that the Node is to have."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


async def keep_node(
    client: KubeClient, facts: Observable[NodeLabels], *, node_name: str
) -> NoReturn:
    """Keep the Node's labels and annotations right, until cancelled.

    It needs `get` and `patch` on nodes.
    """
    retry = Retry("labelling the Node", log, limit=RETRY_LIMIT)
    while True:
        wanted = facts.value
        try:
            with watchdog.step("labelling the Node", limit=_STUCK_SECONDS):
                new = change(await client.get(ManagedNode, node_name), wanted)
                if new is not None:
                    await client.apply(new, manager=MANAGER)
                    keys = {
                        "labels": sorted(wanted.labels),
                        "annotations": sorted(wanted.annotations),
                    }
                    log.info("Node labelled for MindCluster", extra=keys)
        except KubeError as error:
            await trio.sleep(retry.failed(error))
            continue
        retry.recovered()
        with trio.move_on_after(LOOK_SECONDS):
            await facts.wait_for_other(wanted)


def change(node: ManagedNode, wanted: NodeLabels) -> ManagedNode | None:
    """What is to be applied to a Node; None if it is as wanted."""
    stored = node.metadata
    ours = stored.applied_by(MANAGER, "labels")
    labels = {
        key: value
        for key, value in wanted.labels.items()
        if key not in _OTHERS or key in ours or key not in stored.labels
    }
    if _is_so(stored.labels, labels, ours) and _is_so(
        stored.annotations, wanted.annotations, stored.applied_by(MANAGER, "annotations")
    ):
        return None
    meta = ManagedMeta(name=stored.name, labels=labels, annotations=dict(wanted.annotations))
    return ManagedNode(metadata=meta)


def _is_so(stored: Mapping[str, str], wanted: Mapping[str, str], ours: frozenset[str]) -> bool:
    return ours == wanted.keys() and all(stored.get(key) == value for key, value in wanted.items())
