"""Promises against servers that do not speak Kubernetes, or never stop speaking."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from trio_npu_dra.errors import KubeError, Unavailable
from trio_npu_dra.kube.client import KubeClient, WatchEvent, open_client
from trio_npu_dra.kube.credentials import Credentials
from trio_npu_dra.kube.objects import Node

CHUNK = b"x" * (1 << 20)
JSON = "content-type: application/json\r\n"


async def speak(*words: bytes, stream: trio.SocketStream) -> None:
    """Read a request and say something, up to 20 chunks of a MiB."""
    async with stream:
        await stream.receive_some()
        try:
            for word in words:
                await stream.send_all(word)
        except trio.BrokenResourceError:
            return  # the client has heard enough


@asynccontextmanager
async def asking(folder: Path, *words: bytes) -> AsyncIterator[KubeClient]:
    """A client of a server that says *words*."""
    socket = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    path = folder / "api.sock"
    await socket.bind(str(path))
    socket.listen()

    async def handle(stream: trio.SocketStream) -> None:
        await speak(*words, stream=stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, [trio.SocketListener(socket)])
        credentials = Credentials(source="test", base_url="http://localhost", unix_socket=path)
        async with open_client(credentials, deadline=5.0) as client:
            yield client
        nursery.cancel_scope.cancel()


def head(length: int) -> bytes:
    """The head of an answer with a body of *length* bytes."""
    return f"HTTP/1.1 200 OK\r\n{JSON}content-length: {length}\r\n\r\n".encode()


def watching(client: KubeClient) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent[Node]]]:
    """A watch of nodes."""
    return client.watch(Node, resource_version="1")


async def watch_one(client: KubeClient) -> None:
    """The first event of a watch."""
    async with watching(client) as events:
        await anext(events)


Ask = Callable[[KubeClient], Awaitable[object]]


def get_node(client: KubeClient) -> Awaitable[object]:
    """Read a node."""
    return client.get(Node, "n")


def list_nodes(client: KubeClient) -> Awaitable[object]:
    """Read all nodes."""
    return client.list(Node)


def typed(media_type: str, body: bytes, *, status: str = "200 OK", more: str = "") -> bytes:
    """A whole answer of some type."""
    length = f"content-length: {len(body)}"
    text = f"HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\n{more}{length}\r\n\r\n"
    return text.encode() + body


UNTYPED = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
CHUNKED = f"HTTP/1.1 200 OK\r\n{JSON}transfer-encoding: chunked\r\n\r\n".encode()
LOGIN = typed("text/html", b"<html>Log in")
NESTED = b'{"metadata":' + b"[" * 100_000


@pytest.mark.parametrize(
    ("ask", "words", "expected"),
    [
        (get_node, [head(6), b"<html>"], "the answer is not understood"),
        (get_node, [head(2), b"{}"], "metadata"),
        (get_node, [head(len(NESTED)), NESTED], "the answer is not understood"),
        (list_nodes, [head(2), b"[]"], "the answer is not understood"),
        (watch_one, [head(7), b"hello!\n"], "the answer is not understood"),
        (watch_one, [head(15), b'{"type":"ODD"}\n'], "type"),
        (get_node, [LOGIN], "get nodes n: the answer is text/html, not JSON: <html>Log in"),
        (watch_one, [LOGIN], "watch nodes: the answer is text/html, not JSON: <html>Log in"),
        (get_node, [UNTYPED], "the answer is of no type, not JSON"),
        (get_node, [b"SSH-2.0-OpenSSH\r\n"], "no answer from"),
        (get_node, [b"HTTP/1.1 200 OK\r\nx: ", CHUNK], "no answer from"),
        (get_node, [head(20), b"half"], "no answer from"),
        (get_node, [CHUNKED, b"4\r\nhalf\r\n"], "no answer from"),
        (get_node, [head(20 << 20), *[CHUNK] * 20], "an answer of more than 8388608 bytes"),
        (watch_one, [head(20 << 20), *[CHUNK] * 20], "an event of more than 8388608 bytes"),
        (watch_one, [head(20), b"half"], "no answer from"),
        (watch_one, [CHUNKED, b"4\r\nhalf\r\n"], "no answer from"),
    ],
)
async def test_a_strange_answer_is_an_outage(
    ask: Ask, words: list[bytes], expected: str, tmp_path: Path
) -> None:
    """What is not understood, broken off or endless can be retried, and says what it was."""
    with trio.fail_after(10):
        async with asking(tmp_path, *words) as client:
            with pytest.raises(Unavailable, match=expected):
                await ask(client)


@pytest.mark.parametrize("ask", [get_node, list_nodes, watch_one])
async def test_a_redirect_is_not_followed(ask: Ask, tmp_path: Path) -> None:
    """Our token goes to nobody else; the message has the address."""
    moved = typed(
        "text/html", b"", status="302 Found", more="location: https://login.example.com/\r\n"
    )
    with trio.fail_after(10):
        async with asking(tmp_path, moved) as client:
            with pytest.raises(KubeError, match=r"\(HTTP 302\); redirects to https://login"):
                await ask(client)


async def test_half_a_line_at_the_end_of_a_watch_is_left(tmp_path: Path) -> None:
    """The next watch tells that change again, because nothing moved the version on."""
    words = head(10), b'{"type":"A'
    with trio.fail_after(10):
        async with asking(tmp_path, *words) as client, watching(client) as events:
            assert [event async for event in events] == []
