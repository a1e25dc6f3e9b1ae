"""The API client, beside the conformance scenarios."""

import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import trio
from trio.testing import MockClock

from dev.rig.waiting import HANG_SECONDS
from tests.api.scenario import new_driver, slice_of
from tests.api.watch_scenarios import assert_gone
from trio_npu_dra.kit.api.answers import refusal
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.objects import Node, ObjectMeta, ResourceClaim, ResourceSlice
from trio_npu_dra.kit.api.parsing import EventType
from trio_npu_dra.kit.api.transport import AT_ONCE, Transport
from trio_npu_dra.kit.base.errors import Conflict, Forbidden, Gone, Invalid, KubeError, Unavailable
from trio_npu_dra.lab.standins.api_state import ApiState

NODE = Node(metadata=ObjectMeta(name="node-1"))


STATUSES = {
    Invalid: (400, 422),
    Forbidden: (401, 403),
    Unavailable: (404, 408, 429, 500, 502, 503, 504),
    KubeError: (405, 413, 415, 418),
    Conflict: (409,),
    Gone: (410,),
}


@pytest.mark.parametrize("expected", STATUSES)
async def test_each_status_becomes_its_error(
    expected: type[KubeError], client: KubeClient, state: ApiState
) -> None:
    """The error's type follows the status; its message names the request and the reason."""
    for status in STATUSES[expected]:
        state.fail_next(status=status)
        with pytest.raises(KubeError, match=rf"get nodes node-1: injected status {status}") as one:
            await client.get(Node, "node-1")
        assert (type(one.value), one.value.status) == (expected, status)


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("7", 7, 7),
        (timedelta(hours=1), 3000, 3600),
        (timedelta(days=-4000), 0, 0),
        ("", None, None),
        ("soon", None, None),
        ("-1", None, None),
        ("1.5", None, None),
        ("\xb2", None, None),
        ("Wed, 99 Oct 2015", None, None),
        ("Mon, 99999999999999999999 Jan 2026 00:00:00 GMT", None, None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None, None),
        ("Mon, 01 Jan 2026 00:00:00 +99999999999999", None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(
    header: str | timedelta, low: float | None, high: float | None
) -> None:
    """Both forms become seconds from now, never less than zero; other texts count as none."""
    if isinstance(header, timedelta):  # from now on, not from when tests were collected
        header = format_datetime(datetime.now(UTC) + header, usegmt=True)
    error = refusal("get nodes n", 429, b"", {"retry-after": header})
    assert isinstance(error, Unavailable)
    if low is None or high is None:
        assert error.retry_after is None
    else:
        assert error.retry_after is not None
        assert low <= error.retry_after <= high


async def test_a_silent_server_is_unavailable(credentials: Credentials, state: ApiState) -> None:
    """A request without an answer, and a watch that is never accepted, end at the deadline."""
    state.fail_next(2, hang=True)
    with trio.fail_after(HANG_SECONDS):
        async with open_client(credentials, deadline=0.1) as client:
            late = f"no answer from {credentials.unix_socket} in 0.1 s"
            with pytest.raises(Unavailable, match=f"get nodes node-1: {late}"):
                await client.get(Node, "node-1")
            with pytest.raises(Unavailable, match=f"watch nodes: {late}"):
                async with client.watch(Node, resource_version="1"):
                    raise AssertionError


async def test_a_server_that_refuses_connections_is_said_to() -> None:
    """With its address and the system's message, for a request and for a watch."""
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        words = rf"no answer from {url}: \[Errno 111\] .*Connection refused$"
        async with open_client(Credentials(source="test", base_url=url)) as client:
            with pytest.raises(Unavailable, match=words):
                await client.get(Node, "node-1")
            with pytest.raises(Unavailable, match=words):
                async with client.watch(Node, resource_version="1"):
                    raise AssertionError


async def test_a_request_that_outlives_its_client_keeps_no_connection(
    credentials: Credentials, state: ApiState
) -> None:
    """Its connection closes with it, because nothing would close it later."""
    state.add(NODE)
    connections = Transport(credentials, deadline=2.0, user_agent="test")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connections.ask, "get", "GET", "/api/v1/nodes/node-1")
        await trio.lowlevel.checkpoint()
        connections.end()
    assert state.asked("get", "nodes") == 1
    assert connections._idle == []


async def test_no_server_is_unavailable(credentials: Credentials) -> None:
    """A socket that does not exist is an outage, and the message names it."""
    assert credentials.unix_socket is not None
    nowhere = credentials.unix_socket.with_name("nowhere.sock")
    lost = Credentials(source="test", base_url="http://localhost", unix_socket=nowhere)
    async with open_client(lost) as client:
        with pytest.raises(Unavailable, match=r"nowhere\.sock"):
            await client.get(Node, "node-1")


async def test_a_get_is_sent_again_once(client: KubeClient, state: ApiState) -> None:
    """It survives the loss of a kept-alive connection, but not a server that always hangs up."""
    state.add(NODE)
    await client.get(Node, "node-1")
    state.fail_next(drop="before")
    assert (await client.get(Node, "node-1")).metadata.name == "node-1"
    state.fail_next(3, drop="before")
    with pytest.raises(Unavailable):
        await client.get(Node, "node-1")
    assert state.asked("get") == 5


async def test_a_create_is_never_sent_twice(client: KubeClient, state: ApiState) -> None:
    """When the answer to a create is lost, the caller gets an error and one object exists."""
    driver = new_driver()
    await client.list(Node)
    state.fail_next(drop="after", verb="create")
    with pytest.raises(Unavailable):
        await client.create(slice_of(driver))
    assert state.asked("create") == 1
    assert len(state.all(ResourceSlice)) == 1


async def test_cancelled_requests_leave_the_client_usable(
    client: KubeClient, state: ApiState
) -> None:
    """Requests cancelled while they wait do not spoil later ones."""
    state.add(NODE)
    await client.get(Node, "node-1")
    state.fail_next(4, hang=True)
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(client.get, Node, "node-1")
        while state.asked("get") < 5:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    for _ in range(8):
        assert (await client.get(Node, "node-1")).metadata.name == "node-1"


async def test_watches_hold_up_no_request(client: KubeClient, state: ApiState) -> None:
    """With 20 watches open, eight requests get their answers, and each watch its event."""
    state.add(NODE)
    _, version = await client.list(Node)
    seen: list[str] = []

    async def follow(*, task_status: trio.TaskStatus[None]) -> None:
        async with client.watch(Node, resource_version=version) as events:
            task_status.started()
            seen.append((await anext(events)).resource_version)

    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as watching:
            for _ in range(20):
                await watching.start(follow)
            async with trio.open_nursery() as asking:
                for _ in range(8):
                    asking.start_soon(client.get, Node, "node-1")
            assert seen == []
            state.add(Node(metadata=ObjectMeta(name="node-2")))
    assert len(seen) == 20


async def test_a_watch_from_forgotten_history_is_gone(client: KubeClient, state: ApiState) -> None:
    """The API server answers 410, and the caller has to list again."""
    state.add(NODE)
    state.compact()
    await assert_gone(client, Node)


async def test_a_watch_has_bookmarks_and_an_end(client: KubeClient, state: ApiState) -> None:
    """A bookmark moves the version on without an object; then the iterator just ends."""
    state.add(NODE)
    _, version = await client.list(Node)
    with trio.fail_after(HANG_SECONDS):
        async with client.watch(Node, resource_version=version) as events:
            state.bookmark()
            event = await anext(events)
            state.end_watches()
            rest = [late async for late in events]
    assert (event.type, event.object) == (EventType.BOOKMARK, None)
    assert int(event.resource_version) > int(version)
    assert rest == []


async def test_a_refused_watch_never_starts(client: KubeClient, state: ApiState) -> None:
    """A status instead of a stream is raised when the watch is opened."""
    state.fail_next(status=403, verb="watch")
    with pytest.raises(Forbidden, match="watch nodes"):
        async with client.watch(Node, resource_version="1"):
            raise AssertionError


async def test_a_watch_can_be_left_at_any_event(client: KubeClient, state: ApiState) -> None:
    """Leaving with events unread closes the connection quietly."""
    for number in range(5):
        state.add(Node(metadata=ObjectMeta(name=f"n{number}")))
    with trio.fail_after(HANG_SECONDS):
        async with client.watch(Node, resource_version="100") as events:
            event = await anext(events)
    assert event.object is not None
    assert event.object.metadata.name == "n0"


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("", "default"),
        ("..", "default"),
        ("a/../b", "default"),
        ("a b", "default"),
        ("a\nb", "default"),
        ("a\n", "default"),
        ("a?b", "default"),
        ("a%2fb", "default"),
        ("A", "default"),
        ("\xe9", "default"),
        ("a" * 254, "default"),
        ("c", "a.b"),
        ("c", "default/../default"),
        ("c", "a" * 64),
    ],
)
async def test_an_invalid_name_is_refused(
    name: str, namespace: str, client: KubeClient, state: ApiState
) -> None:
    """The message has the name, and the API server is not asked."""
    with pytest.raises(Invalid, match="lower case letters, digits and '-'"):
        await client.get(ResourceClaim, name, namespace)
    with pytest.raises(Invalid, match="is no name"):
        await client.delete(ResourceClaim, name if namespace == "default" else "A", "default")
    assert state.requests == []


async def test_a_burst_opens_no_more_connections_than_may_be_in_use(
    credentials: Credentials, state: ApiState, mock_clock: MockClock
) -> None:
    """The next burst uses them again; a few seconds after the burst, eight stay."""
    state.add(NODE)
    connections = Transport(credentials, deadline=2.0, user_agent="test")

    async def burst(count: int) -> set[int]:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(connections.ask, "get", "GET", "/api/v1/nodes/node-1")
        return {id(connection) for connection in connections._idle}

    first = await burst(100)
    assert len(first) == AT_ONCE
    assert await burst(100) == first
    mock_clock.jump(6)
    assert len(await burst(1)) == 8
    connections.end()


async def test_the_wait_for_a_turn_counts(
    credentials: Credentials, state: ApiState, autojump_clock: MockClock
) -> None:
    """A request without a turn by its deadline is not sent, and its error says so."""
    del autojump_clock  # the fixture gives all requests the same deadline
    connections = Transport(credentials, deadline=2.0, user_agent="test")
    path = "/api/v1/nodes/node-1"
    state.fail_next(AT_ONCE, hang=True)
    refused: list[str] = []

    async def ask() -> None:
        with pytest.raises(Unavailable) as caught:
            await connections.ask("get", "GET", path)
        refused.append(str(caught.value))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE + 3):
                nursery.start_soon(ask)
    assert sum("not sent in 2 s" in words for words in refused) == 3
    assert state.asked("get") == AT_ONCE
    connections.end()
