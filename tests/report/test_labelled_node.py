"""Labels of a Node at an API server: what is written, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dev.rig.waiting import HANG_SECONDS, until
from trio_npu_dra.agent.report.labelled_node import (
    RETRY_LIMIT,
    ManagedMeta,
    ManagedNode,
    NodeLabels,
    change,
    keep_node,
)
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.objects import Node, ObjectMeta
from trio_npu_dra.kit.base.errors import KubeError, Unavailable
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState

NODE = "node-a"
THEIRS = {"kubernetes.io/os": "linux", "kind": "mine"}
keep = partial(keep_node, node_name=NODE, manager="ours", unforced={"kind"})


@pytest.fixture
def state() -> ApiState:
    """An API server with a Node that people have labelled."""
    state = ApiState()
    state.add(Node(metadata=ObjectMeta(name=NODE, labels=THEIRS)))
    return state


@pytest.fixture
async def client(state: ApiState, folder: Path, nursery: trio.Nursery) -> AsyncIterator[KubeClient]:
    """A client of it."""
    socket = folder / "api.sock"
    await nursery.start(serve_api, state, socket)
    credentials = Credentials(source="test", base_url="http://localhost", unix_socket=socket)
    async with open_client(credentials) as opened:
        yield opened


def stored(state: ApiState) -> ManagedMeta:
    """What the Node has."""
    (node,) = state.all(ManagedNode)
    return node.metadata


async def test_the_node_is_as_wanted_and_written_no_more(
    state: ApiState, client: KubeClient, nursery: trio.Nursery
) -> None:
    """Another start finds it so; what is wanted no more goes, and what others wrote stays."""
    wanted = Observable(NodeLabels(labels={"a": "1", "kind": "x"}))
    with trio.fail_after(HANG_SECONDS):
        for _ in range(2):
            await nursery.start(keep, client, wanted)
            assert stored(state).labels == THEIRS | {"a": "1"}
        await wait_all_tasks_blocked(0.01)
        assert (state.asked("get"), state.asked("patch")) == (2, 1)
        wanted.set(NodeLabels())
        await until(lambda: stored(state).labels == THEIRS)
    nursery.cancel_scope.cancel()


async def test_two_managers_may_want_the_same(
    state: ApiState, client: KubeClient, nursery: trio.Nursery
) -> None:
    """It stays until neither does."""
    mine, yours = (Observable(NodeLabels(labels={"pod": "7"})) for _ in range(2))
    with trio.fail_after(HANG_SECONDS):
        await nursery.start(partial(keep, manager="yours"), client, yours)
        await nursery.start(partial(keep, unforced={"pod"}), client, mine)
        yours.set(NodeLabels())
        await until(lambda: not stored(state).labels_by("yours"))
        assert stored(state).labels == THEIRS | {"pod": "7"}
        mine.set(NodeLabels())
        await until(lambda: stored(state).labels == THEIRS)
    nursery.cancel_scope.cancel()


async def test_another_node_of_that_name_is_labelled_too(
    state: ApiState, client: KubeClient, nursery: trio.Nursery
) -> None:
    """If it is the one that was labelled, nothing has changed, and no request is made."""
    wanted = Observable(NodeLabels(labels={"a": "1"}))

    def tell(labels: dict[str, str], uid: str | None) -> None:
        wanted.set(NodeLabels(labels=labels, node_uid=uid or ""))

    def replace_node() -> None:
        state.remove(Node, NODE)
        state.add(Node(metadata=ObjectMeta(name=NODE)))

    with trio.fail_after(HANG_SECONDS):
        await nursery.start(keep, client, wanted)
        tell({"a": "1"}, first := stored(state).uid)
        replace_node()
        tell({"a": "2"}, first)
        await until(lambda: stored(state).labels == {"a": "2"})
        tell({"a": "2"}, stored(state).uid)
        await wait_all_tasks_blocked(0.01)
        assert state.asked("get") == 2
        replace_node()
        tell({"a": "2"}, stored(state).uid)
        await until(lambda: stored(state).labels == {"a": "2"})
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("value", "owner", "labels"),
    [
        (None, "", {"kind": "new"}),
        ("old", "ours", {"kind": "new"}),
        ("old", "kubectl", None),
        ("new", "kubectl", {"kind": "new"}),
    ],
)
def test_a_label_stays_where_another_writer_set_another_value(
    value: str | None, owner: str, labels: dict[str, str] | None
) -> None:
    """Our own follows the facts; an equal one is ours too, so that it stays if the other goes."""
    fields: Any = {"f:metadata": {"f:labels": {"f:kind": {}}}}
    owners = [{"manager": owner, "operation": "Apply", "fieldsV1": fields}] if owner else []
    meta: Any = {"name": NODE, "labels": {"kind": value} if value else {}, "managedFields": owners}
    node = ManagedNode(metadata=ManagedMeta.model_validate(meta))
    new = change(node, NodeLabels(labels={"kind": "new"}), manager="ours", unforced={"kind"})
    assert (new.metadata.labels if new else None) == labels


class NodeServer:
    """Has a Node that nothing labels; notes what is to be applied to it."""

    def __init__(self) -> None:
        self.applied: list[ManagedNode] = []
        self.error: KubeError | None = Unavailable("away")

    async def get(self, kind: type[ManagedNode], name: str) -> ManagedNode:
        """The Node."""
        await trio.lowlevel.checkpoint()
        if self.error:
            raise self.error
        return kind(metadata=ManagedMeta(name=name))

    async def apply(self, obj: ManagedNode, *, manager: str) -> None:
        """Note it."""
        await trio.lowlevel.checkpoint()
        assert manager == "ours"
        self.applied.append(obj)


async def test_a_failure_holds_nobody_and_is_tried_for_ever(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """It says when it works; an edit stays until something else is wanted."""
    del autojump_clock
    caplog.set_level("INFO")
    server: Any = NodeServer()
    wanted = Observable(NodeLabels(labels={"a": "1"}))
    await nursery.start(keep, server, wanted)
    await trio.sleep(10)
    server.error = None
    await trio.sleep(1.5 * RETRY_LIMIT)
    assert len(server.applied) == 1
    assert caplog.messages[-1] == "labelling the Node works again"
    await trio.sleep(3600)
    wanted.set(NodeLabels(labels={"a": "2"}))
    await trio.sleep(1)
    assert [one.metadata.labels["a"] for one in server.applied] == ["1", "2"]
    nursery.cancel_scope.cancel()
