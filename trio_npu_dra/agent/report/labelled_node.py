"""Keeps labels of the Node at the API server as they are wanted.

They are applied under a field manager, so the API server removes what we apply no more and keeps
what other writers have set.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import trio
from pydantic import Field

from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import ApiModel, Items, Node, ObjectMeta
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import KubeError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.base.pace import Retry

log = logging.getLogger(__name__)

RETRY_LIMIT: Final = 60.0
"""Seconds between two tries, at most: a node that lacks the rights tries for ever."""

_STUCK_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabels:
    """What the Node is to have.

    Attributes:
        labels: Its labels.
        node_uid: UID of the Node; empty if it is not known. One with another UID has none of them.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    node_uid: str = ""


async def keep_node(
    client: KubeClient,
    wanted: Observable[NodeLabels],
    *,
    node_name: str,
    manager: str,
    unforced: AbstractSet[str] = frozenset(),
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep labels of the Node right, until cancelled.

    Args:
        client: The API server; needs `get` and `patch` on nodes.
        wanted: What the Node is to have.
        node_name: Its name.
        manager: The field manager.
        unforced: Labels that stay where another writer has set another value.
        task_status: Started after the first try, even if that failed.
    """
    retry = Retry("labelling the Node", log, limit=RETRY_LIMIT)
    while True:
        now, uid, pause = wanted.value, "", 0.0
        try:
            with watchdog.step("labelling the Node", limit=_STUCK_SECONDS):
                uid = await _label(client, now, node_name, manager, unforced)
        except KubeError as error:
            pause = retry.failed(error)
        else:
            retry.recovered()
        task_status.started()
        task_status = trio.TASK_STATUS_IGNORED  # reported once
        if pause:
            await trio.sleep(pause)
            continue
        # An edit by others stays until something else is wanted.
        await wanted.wait_until(partial(_is_other, now, uid))


async def _label(
    client: KubeClient,
    wanted: NodeLabels,
    node_name: str,
    manager: str,
    unforced: AbstractSet[str],
) -> str:
    """Write what the Node lacks; returns its UID."""
    node = await client.get(ManagedNode, node_name)
    new = change(node, wanted, manager=manager, unforced=unforced)
    if new is not None:
        await client.apply(new, manager=manager)
        log.info("Node labelled", extra={"labels": new.metadata.labels})
    return node.metadata.uid or ""


def _is_other(before: NodeLabels, uid: str, now: NodeLabels) -> bool:
    """Whether something else is wanted than was written to the Node with *uid*, or for another."""
    is_same_node = now.node_uid in {uid, before.node_uid}  # which may be that of a Node before it
    return not is_same_node or replace(now, node_uid="") != replace(before, node_uid="")


def change(
    node: ManagedNode, wanted: NodeLabels, *, manager: str, unforced: AbstractSet[str] = frozenset()
) -> ManagedNode | None:
    """What a manager is to apply to a Node; None if that is as wanted; pure."""
    stored = node.metadata
    ours = stored.labels_by(manager)
    labels = {
        key: value
        for key, value in wanted.labels.items()
        if key not in unforced or key in ours or stored.labels.get(key, value) == value
    }
    if ours == labels.keys() and labels.items() <= stored.labels.items():
        return None
    return ManagedNode(metadata=ManagedMeta(name=stored.name, uid=stored.uid, labels=labels))


class ManagedFields(ApiModel):
    """metadata.managedFields[]: the fields that one manager wrote, as nested keys `f:<name>`."""

    manager: str = ""
    operation: str = ""
    fields: Any = Field(None, alias="fieldsV1")


class ManagedMeta(ObjectMeta):
    """metadata, with the managers of its fields."""

    managed_fields: Items[ManagedFields] = ()

    def labels_by(self, manager: str) -> frozenset[str]:
        """The keys of the labels that a manager has applied."""
        found: set[str] = set()
        for one in self.managed_fields:
            if (one.manager, one.operation) == (manager, "Apply"):
                fields = one.fields
                for step in ("f:metadata", "f:labels"):
                    fields = fields.get(step) if isinstance(fields, dict) else None
                found |= {key.removeprefix("f:") for key in fields or () if key != "."}
        return frozenset(found)


class ManagedNode(Node):
    """A Node whose labels have several writers."""

    metadata: ManagedMeta
