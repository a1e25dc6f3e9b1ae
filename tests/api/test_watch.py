"""The local view that list and watch keep current."""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from dev.rig.waiting import HANG_SECONDS
from trio_npu_dra.kit.api.bodies import LIST_LIMIT, OBJECT_LIMIT
from trio_npu_dra.kit.api.client import OBJECTS_LIMIT, KubeClient
from trio_npu_dra.kit.api.objects import Node, ObjectMeta
from trio_npu_dra.kit.api.transport import JSON, Transport
from trio_npu_dra.kit.api.watch import View, list_and_watch
from trio_npu_dra.lab.standins.api_state import ApiState


def node(name: str) -> Node:
    """A Node."""
    return Node(metadata=ObjectMeta(name=name))


async def first(
    views: AsyncIterator[View[Node]], wanted: Callable[[View[Node]], bool]
) -> View[Node]:
    """The first view that matches."""
    with trio.fail_after(HANG_SECONDS):
        async for view in views:
            if wanted(view):
                return view
    raise AssertionError


async def test_nothing_is_known_before_the_first_list(client: KubeClient, state: ApiState) -> None:
    """The first view is empty and not synced; the next one has everything."""
    state.add(node("a"))
    state.add(node("b"))
    async with aclosing(list_and_watch(client, Node)) as views:
        start = await first(views, lambda _: True)
        synced = await first(views, lambda _: True)
    assert (start.synced, dict(start.objects)) == (False, {})
    assert start.stale_since is not None
    assert (synced.synced, set(synced.objects), synced.stale_since) == (True, {"a", "b"}, None)


async def test_lost_contact_shows_in_the_view(client: KubeClient, state: ApiState) -> None:
    """Failing lists are retried; while no watch is open the objects stay, and the view is stale."""
    state.add(node("a"))
    state.fail_next(2, status=500, verb="list")
    async with aclosing(list_and_watch(client, Node)) as views:
        await first(views, lambda view: view.synced and view.stale_since is None)
        state.fail_next(2, status=503, verb="watch")
        state.end_watches()
        stale = await first(views, lambda view: view.stale_since is not None)
        state.add(node("b"))
        fresh = await first(views, lambda view: "b" in view.objects)
    assert set(stale.objects) == {"a"}
    assert fresh.stale_since is None
    assert state.asked("list") == 3


async def test_forgotten_history_is_listed_again(client: KubeClient, state: ApiState) -> None:
    """After a 410 the view has the changes of the meantime, also removals."""
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
    """A 410 right after a list is a failure with a pause."""
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


# --- answers that are not understood, or too large -----------------------------------------------


class Scripted(Transport):
    """Gives the same list and events to every request, and counts.

    Attributes:
        items: The items of a list.
        events: The events of each watch before it goes quiet.
        after: Seconds after which it sends them.
    """

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.events: list[Any] = []
        self.after = 0.0
        self.lists = self.watches = 0

    async def ask(
        self,
        asked: str,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        limit: int = OBJECT_LIMIT,
        accept: bytes = JSON,
    ) -> bytes:
        """Give the list."""
        del asked, method, path, body, limit, accept
        await trio.lowlevel.checkpoint()
        self.lists += 1
        return json.dumps({"metadata": {"resourceVersion": "10"}, "items": self.items}).encode()

    async def stream(self, asked: str, path: str, *, seconds: float) -> AsyncGenerator[bytes, None]:
        """Give the events, then nothing until the watch is over."""
        del asked, path
        self.watches += 1
        yield b""
        await trio.sleep(self.after)
        for event in self.events:
            yield json.dumps(event).encode()
        await trio.sleep(seconds - 15)


def added(name: Any, **metadata: Any) -> dict[str, Any]:
    """An event about a Node."""
    meta = {"name": name, "resourceVersion": "11", **metadata}
    return {"type": "ADDED", "object": {"metadata": meta}}


@pytest.mark.parametrize("after", [0.0, 11.0, 200.0], ids=lambda after: f"after {after:g} s")
@pytest.mark.parametrize(
    "poison",
    [added("x", generateName=5), added(5), {"type": "ODD", "object": {}}, ["odd"]],
    ids=["a field", "the name", "the type", "the whole"],
)
async def test_an_event_that_is_not_understood_costs_few_requests(
    poison: Any, after: float, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each watch meets it again: an hour costs some dozen lists, and as few log lines."""
    del autojump_clock
    api = Scripted()
    api.events, api.after = [poison], after
    with trio.move_on_after(3600):
        async with aclosing(list_and_watch(KubeClient(api), Node)) as views:
            async for _ in views:
                pass
    assert 10 <= api.lists <= 60
    assert api.watches <= api.lists
    assert len(caplog.records) <= 40
    assert "watch nodes: the answer is not understood" in str(vars(caplog.records[0])["error"])


async def test_an_object_that_is_not_understood_is_named(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names its field; when the object is gone, the view is complete within minutes."""
    del autojump_clock
    api = Scripted()
    api.items = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b", "labels": {"l": 5}}}]
    async with aclosing(list_and_watch(KubeClient(api), Node)) as views:
        with trio.move_on_after(3600):
            async for view in views:
                assert not view.synced
        assert api.lists <= 40
        assert "metadata.labels.l: Input should be a valid string" in str(
            vars(caplog.records[0])["error"]
        )
        api.items.pop()
    async with aclosing(list_and_watch(KubeClient(api), Node)) as views:
        assert set((await first(views, lambda view: view.synced)).objects) == {"a"}


@pytest.mark.parametrize(
    "events",
    [
        [added(f"n{number}") for number in range(OBJECTS_LIMIT + 1)],
        [added(f"n{number}", uid="u" * (LIST_LIMIT // 8)) for number in range(8)],
    ],
    ids=["objects", "bytes"],
)
async def test_a_picture_does_not_grow_without_end(
    events: list[Any], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A view larger than any list is dropped for a new list, with growing pauses."""
    del autojump_clock
    api = Scripted()
    api.events = events
    seen = 0
    with trio.move_on_after(600):
        async with aclosing(list_and_watch(KubeClient(api), Node)) as views:
            async for view in views:
                seen = max(seen, len(view.objects))
    assert seen == len(events) - 1
    assert 5 <= api.lists <= 20
    words = f"more than {OBJECTS_LIMIT} objects or {LIST_LIMIT} bytes of them"
    assert words in str(vars(caplog.records[0])["error"])


async def test_changes_of_one_object_count_once(autojump_clock: MockClock) -> None:
    """Many large versions of one object are no large view, and removed objects do not count."""
    del autojump_clock
    api = Scripted()
    api.events = [added("n", uid="u" * (LIST_LIMIT // 8)) for _ in range(10)]
    gone = {"type": "DELETED", "object": {"metadata": {"name": "n"}}}
    api.events += [gone, added("m", uid="u" * (LIST_LIMIT // 8))]
    async with aclosing(list_and_watch(KubeClient(api), Node)) as views:
        assert set((await first(views, lambda view: "m" in view.objects)).objects) == {"m"}
    assert api.lists == 1
