"""Servers that do not speak Kubernetes, or never stop sending."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.api.conftest import Serve
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.objects import Node, ObjectMeta, ResourceClaim
from trio_npu_dra.kit.base.errors import KubeError, NotFound, Unavailable

CHUNK = b"x" * (1 << 20)
JSON = "content-type: application/json\r\n"

Ask = Callable[[KubeClient], Awaitable[object]]
Saying = Callable[..., Awaitable[Credentials]]


def credentials_for(socket: Path) -> Credentials:
    """Credentials without an identity."""
    return Credentials(source="test", base_url="http://localhost", unix_socket=socket)


@pytest.fixture
async def saying(serve: Serve) -> Saying:
    """Serves one answer, perhaps in several pieces, for each request."""

    async def say(*words: bytes) -> Credentials:
        async def speak(stream: trio.SocketStream) -> None:
            async with stream:
                await stream.receive_some()
                with suppress(trio.BrokenResourceError):  # the client has read enough
                    for word in words:
                        await stream.send_all(word)

        return credentials_for(await serve(speak))

    return say


async def failure(ask: Ask, credentials: Credentials) -> KubeError:
    """The error with which a request ends."""
    with trio.fail_after(10):
        async with open_client(credentials) as client:
            with pytest.raises(KubeError) as caught:
                await ask(client)
    return caught.value


def head(length: int) -> bytes:
    """The head of an answer with a body of *length* bytes."""
    return f"HTTP/1.1 200 OK\r\n{JSON}content-length: {length}\r\n\r\n".encode()


async def watch_nodes(client: KubeClient) -> int:
    """Follow nodes and return the number of events."""
    async with client.watch(Node, resource_version="1") as events:
        return len([event async for event in events])


def get_node(client: KubeClient) -> Awaitable[object]:
    """Read a node."""
    return client.get(Node, "n")


def list_nodes(client: KubeClient) -> Awaitable[object]:
    """Read all nodes."""
    return client.list(Node)


def list_pages(client: KubeClient) -> Awaitable[object]:
    """Read all nodes in pages."""
    return client.list_all(Node, page=4)


def get_version(client: KubeClient) -> Awaitable[object]:
    """Ask for the server's version."""
    return client.minor_version()


def typed(media_type: str, body: bytes, *, status: str = "200 OK", more: str = "") -> bytes:
    """A whole answer of some type."""
    length = f"content-length: {len(body)}"
    text = f"HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\n{more}{length}\r\n\r\n"
    return text.encode() + body


UNTYPED = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
CHUNKED = f"HTTP/1.1 200 OK\r\n{JSON}transfer-encoding: chunked\r\n\r\n".encode()
LOGIN = typed("text/html", b"<html>Log in")
NESTED = b'{"metadata":' + b"[" * 90_000
CROWD = b'{"metadata":{},"items":[' + b",".join([b"{}"] * 1001) + b"]}"
BEGUN = b'{"metadata":{},"items":'
VERSION = b'{"major":"1","minor":"' + b"9" * 5000 + b'"}'
OTHER = b'{"metadata":{"name":"x"}}'


@pytest.mark.parametrize(
    ("ask", "words", "expected"),
    [
        (get_node, [head(6), b"<html>"], "the answer is not understood"),
        (get_node, [head(2), b"{}"], "metadata"),
        (get_node, [head(len(NESTED)), NESTED], "the answer is not understood"),
        (list_nodes, [head(2), b"[]"], "the answer is not understood"),
        (watch_nodes, [head(7), b"hello!\n"], "the answer is not understood"),
        (watch_nodes, [head(15), b'{"type":"ODD"}\n'], "type"),
        (get_node, [LOGIN], "get nodes n: the answer is text/html, not JSON: <html>Log in"),
        (watch_nodes, [LOGIN], "watch nodes: the answer is text/html, not JSON: <html>Log in"),
        (get_node, [UNTYPED], "the answer is of no type, not JSON"),
        (get_node, [b"SSH-2.0-OpenSSH\r\n"], "no answer from"),
        (get_node, [b"HTTP/1.1 101 Switching Protocols\r\n\r\n"], "no answer from"),
        (get_node, [b"HTTP/1.1 103 Early Hints\r\n\r\n", head(6), b"<html>"], "not understood"),
        (get_node, [], "no answer from {socket}: it hung up without an answer"),
        (
            watch_nodes,
            [],
            "no answer from {socket}: Server disconnected without sending a response.",
        ),
        (get_node, [b"HTTP/1.1 200 OK\r\nx: ", CHUNK], "no answer from"),
        (get_node, [head(20), b"half"], "no answer from"),
        (get_node, [CHUNKED, b"4\r\nhalf\r\n"], "no answer from"),
        (get_node, [head(20 << 20), *[CHUNK] * 20], "an answer of more than 2097152 bytes"),
        (list_pages, [head(2), b"[]"], "the answer is not understood"),
        (list_pages, [head(len(BEGUN)), BEGUN], "the answer is not understood"),
        (list_pages, [head(len(BEGUN) + 3), BEGUN + b"{}}"], "the answer is not understood"),
        (list_pages, [head(20 << 20), *[CHUNK] * 20], "an answer of more than 8388608 bytes"),
        (list_nodes, [head(20 << 20), *[CHUNK] * 20], "an answer of more than 8388608 bytes"),
        (watch_nodes, [head(20 << 20), *[CHUNK] * 20], "an event of more than 2097152 bytes"),
        (list_nodes, [head(len(CROWD)), CROWD], "list nodes: 1001 objects, at most 1000 are read"),
        (get_node, [head(len(OTHER)), OTHER], "get nodes n: the answer is about nodes x"),
        (get_version, [head(len(VERSION)), VERSION], ", no number"),
        (watch_nodes, [head(20), b"half"], "no answer from"),
        (watch_nodes, [CHUNKED, b"4\r\nhalf\r\n"], "no answer from"),
    ],
)
async def test_a_strange_answer_is_an_outage(
    ask: Ask, words: list[bytes], expected: str, saying: Saying
) -> None:
    """A malformed, broken or endless answer can be retried, and the error describes it."""
    credentials = await saying(*words)
    error = await failure(ask, credentials)
    assert isinstance(error, Unavailable)
    assert expected.replace("{socket}", str(credentials.unix_socket)) in str(error)


@pytest.mark.parametrize("ask", [list_pages, watch_nodes])
async def test_an_answer_may_have_long_headers(ask: Ask, saying: Saying) -> None:
    """A proxy adds cookies and policies to what the API server says."""
    more = f"x-added: {'x' * 90_000}\r\n"
    answer = typed("application/json", b'{"metadata":{}}', more=more)
    async with open_client(await saying(answer)) as client:
        await ask(client)


@pytest.mark.parametrize("ask", [get_node, list_nodes, watch_nodes])
async def test_a_redirect_is_not_followed(ask: Ask, saying: Saying) -> None:
    """The token goes to no other server; the message has the address."""
    location = "location: https://login.example.com/\r\n"
    answer = typed("text/html", b"", status="302 Found", more=location)
    error = await failure(ask, await saying(answer))
    assert error.status == 302
    assert "https://login.example.com/" in str(error)


async def test_half_a_line_at_the_end_of_a_watch_is_left(saying: Saying) -> None:
    """The next watch sends that change again, because the version has not moved on."""
    credentials = await saying(head(10), b'{"type":"A')
    with trio.fail_after(10):
        async with open_client(credentials) as client:
            assert await watch_nodes(client) == 0


PLAIN_404 = typed("text/plain; charset=utf-8", b"404 page not found\n", status="404 Not Found")


def status_404(details: str, *, kind: str = "Status", reason: str = "NotFound") -> bytes:
    """A 404 in the API server's form."""
    words = f'"kind":"{kind}","reason":"{reason}","message":"words","code":404{details}'
    return typed("application/json", f"{{{words}}}".encode(), status="404 Not Found")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status_404(""), NotFound),
        (status_404(',"details":{"name":"c","kind":"resourceclaims"}'), NotFound),
        (status_404(',"details":{"name":"default","kind":"namespaces"}'), Unavailable),
        (status_404(',"details":{"name":"d","kind":"resourceclaims"}'), Unavailable),
        (status_404("", reason="Unknown"), Unavailable),
        (status_404("", kind="Problem"), Unavailable),
        (PLAIN_404, Unavailable),
        (typed("application/json", b"{}", status="404 Not Found"), Unavailable),
        (LOGIN.replace(b"200 OK", b"404 Not Found"), Unavailable),
    ],
)
async def test_only_the_api_server_can_say_that_an_object_is_missing(
    answer: bytes, expected: type[KubeError], saying: Saying
) -> None:
    """A proxy that does not know the path, or a disabled API, cannot."""
    credentials = await saying(answer)
    error = await failure(lambda client: client.get(ResourceClaim, "c", "default"), credentials)
    assert (type(error), error.status) == (expected, 404)
    assert "claims default/c: " in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        typed("text/html", CHUNK),
        typed("x" * 5000, b""),
        typed("application/json", b'{"message":"' + CHUNK + b'"}', status="500 Error"),
        typed("text/html", b"", status="302 Found", more=f"location: /{'x' * 5000}\r\n"),
    ],
    ids=["page", "type", "message", "location"],
)
async def test_foreign_words_are_cut(answer: bytes, saying: Saying) -> None:
    """They go into logs, and into Events of pods."""
    assert len(str(await failure(get_node, await saying(answer)))) < 2500


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (b"x", 31.0),
        (b'{"type":"BOOKMARK","object":{"metadata":{}}}\n', 305.0),
        (b"\n", 305.0),
        (b"", 305.0),
    ],
    ids=["a byte a second", "no end", "empty lines", "silence"],
)
async def test_a_watch_that_delivers_nothing_whole_in_time_is_given_up(
    words: bytes, seconds: float, serve: Serve, autojump_clock: MockClock
) -> None:
    """A line has half a minute from its first byte, a watch 15 s more than requested."""
    del autojump_clock

    async def drip(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(head(1 << 40))
            with suppress(trio.BrokenResourceError):
                while True:
                    await trio.sleep(1)
                    await stream.send_all(words)

    credentials = credentials_for(await serve(drip))
    began = trio.current_time()
    async with open_client(credentials) as client:
        with pytest.raises(Unavailable, match="neither a whole event nor an end in time"):
            await watch_nodes(client)
    assert trio.current_time() - began == pytest.approx(seconds, abs=1)


async def test_what_is_stored_after_an_apply_need_not_be_understood(saying: Saying) -> None:
    """Anybody may have given the object a thousand labels; a second apply would help nobody."""
    credentials = await saying(typed("application/json", b'{"metadata": []}'))
    async with open_client(credentials) as client:
        await client.apply(Node(metadata=ObjectMeta(name="n")), manager="m")
