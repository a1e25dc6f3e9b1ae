"""Promises of the local picture kept by list and watch."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest
import trio

from trio_npu_dra.kube.client import KubeClient
from trio_npu_dra.kube.objects import Node, ObjectMeta
from trio_npu_dra.kube.watch import View, list_and_watch
from trio_npu_dra.standins.api_state import ApiState


def node(name: str) -> Node:
    """A Node."""
    return Node(metadata=ObjectMeta(name=name))


async def first(
    views: AsyncIterator[View[Node]], wanted: Callable[[View[Node]], bool]
) -> View[Node]:
    """The first view that is as wanted."""
    with trio.fail_after(5):
        async for view in views:
            if wanted(view):
                return view
    raise AssertionError


async def test_nothing_is_known_before_the_first_list(client: KubeClient, state: ApiState) -> None:
    """The first view is empty and says so; then everything is there at once."""
    state.add(node("a"))
    state.add(node("b"))
    async with aclosing(list_and_watch(client, Node)) as views:
        start = await first(views, lambda _: True)
        synced = await first(views, lambda _: True)
    assert (start.synced, dict(start.objects)) == (False, {})
    assert start.stale_since is not None
    assert (synced.synced, set(synced.objects), synced.stale_since) == (True, {"a", "b"}, None)


async def test_changes_arrive_as_whole_views(client: KubeClient, state: ApiState) -> None:
    """After an addition and a removal, each view has all objects of that moment."""
    state.add(node("a"))
    async with aclosing(list_and_watch(client, Node)) as views:
        await first(views, lambda view: view.synced)
        state.add(node("b"))
        assert set((await first(views, lambda _: True)).objects) == {"a", "b"}
        state.remove(Node, "a")
        assert set((await first(views, lambda _: True)).objects) == {"b"}


async def test_a_selector_limits_the_view(client: KubeClient, state: ApiState) -> None:
    """Objects that the selector leaves out are never seen."""
    state.add(node("a"))
    views = list_and_watch(client, Node, field_selector="metadata.name=b")
    async with aclosing(views):
        await first(views, lambda view: view.synced)
        state.add(node("c"))
        state.add(node("b"))
        assert set((await first(views, lambda view: bool(view.objects))).objects) == {"b"}


async def test_lost_contact_shows_in_the_view(client: KubeClient, state: ApiState) -> None:
    """While no watch is open the objects stay and are marked stale; then they are fresh again."""
    state.add(node("a"))
    async with aclosing(list_and_watch(client, Node)) as views:
        await first(views, lambda view: view.synced and view.stale_since is None)
        state.fail_next(2, status=503, verb="watch")
        state.end_watches()
        stale = await first(views, lambda view: view.stale_since is not None)
        state.add(node("b"))
        fresh = await first(views, lambda view: "b" in view.objects)
    assert set(stale.objects) == {"a"}
    assert fresh.stale_since is None
    assert state.asked("list") == 1


async def test_forgotten_history_is_listed_again(client: KubeClient, state: ApiState) -> None:
    """After a 410 the view has what changed meanwhile, also what was removed."""
    state.add(node("a"))
    async with aclosing(list_and_watch(client, Node)) as views:
        await first(views, lambda view: view.synced and view.stale_since is None)
        state.fail_next(status=503, verb="watch")
        state.end_watches()
        await first(views, lambda view: view.stale_since is not None)
        state.remove(Node, "a")
        state.add(node("b"))
        state.compact()
        fresh = await first(views, lambda view: "b" in view.objects)
    assert set(fresh.objects) == {"b"}


async def test_a_server_that_forgets_all_the_time_is_not_hammered(
    client: KubeClient, state: ApiState, caplog: pytest.LogCaptureFixture
) -> None:
    """A 410 for what was listed a moment ago is a failure like others."""
    caplog.set_level(logging.WARNING)
    state.fail_next(2, status=410, verb="watch")
    async with aclosing(list_and_watch(client, Node)) as views:
        await first(views, lambda view: view.synced and view.stale_since is None)
    assert len(caplog.records) == 2
    assert state.asked("list") == 3


async def test_a_bookmark_saves_the_list(client: KubeClient, state: ApiState) -> None:
    """A watch that ended after a bookmark continues there, although older history is gone."""
    state.add(node("a"))
    async with aclosing(list_and_watch(client, Node)) as views:
        await first(views, lambda view: view.synced and view.stale_since is None)
        state.add(node("b"))
        await first(views, lambda view: "b" in view.objects)
        state.bookmark()
        state.end_watches()
        state.add(node("c"))
        await first(views, lambda view: "c" in view.objects)
    assert state.asked("list") == 1


async def test_an_absent_server_is_waited_for(client: KubeClient, state: ApiState) -> None:
    """Failing lists are retried until one works."""
    state.add(node("a"))
    state.fail_next(2, status=500, verb="list")
    async with aclosing(list_and_watch(client, Node)) as views:
        assert set((await first(views, lambda view: view.synced)).objects) == {"a"}
    assert state.asked("list") == 3
