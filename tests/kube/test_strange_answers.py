"""Promises against servers that do not speak Kubernetes, or never stop speaking."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from trio_npu_dra.errors import Unavailable
from trio_npu_dra.kube.client import KubeClient, open_client
from trio_npu_dra.kube.credentials import Credentials
from trio_npu_dra.kube.objects import Node

CHUNK = b"x" * (1 << 20)


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
    return f"HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n".encode()


async def watch_one(client: KubeClient) -> None:
    """The first event of a watch."""
    async with client.watch(Node, resource_version="1") as events:
        await anext(events)


Ask = Callable[[KubeClient], Awaitable[object]]


def get_node(client: KubeClient) -> Awaitable[object]:
    """Read a node."""
    return client.get(Node, "n")


def list_nodes(client: KubeClient) -> Awaitable[object]:
    """Read all nodes."""
    return client.list(Node)


@pytest.mark.parametrize(
    ("ask", "words", "expected"),
    [
        (get_node, [head(6), b"<html>"], "the answer is not understood"),
        (get_node, [head(2), b"{}"], "metadata"),
        (list_nodes, [head(2), b"[]"], "the answer is not understood"),
        (watch_one, [head(7), b"hello!\n"], "the answer is not understood"),
        (watch_one, [head(15), b'{"type":"ODD"}\n'], "type"),
        (get_node, [b"SSH-2.0-OpenSSH\r\n"], "no answer from"),
        (get_node, [head(20), b"half"], "no answer from"),
        (get_node, [head(20 << 20), *[CHUNK] * 20], "more than 8388608 bytes"),
        (watch_one, [head(20 << 20), *[CHUNK] * 20], "more than 8388608 bytes"),
        (watch_one, [head(20), b"half"], "no answer from"),
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
