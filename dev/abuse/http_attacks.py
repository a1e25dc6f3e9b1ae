"""Attacks by clients that reach the HTTP port."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import h2.connection
import h2.settings
import trio

from dev.abuse.node import HarmDone, Node
from dev.abuse.wire import connect, crowd, get, http2, request, say

POD_GRACE_SECONDS = 30
"""Time that Kubernetes gives a pod between SIGTERM and SIGKILL."""

_SMALL_BUFFER = 4096
_PAGE = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"n")]


def rapid_reset(node: Node, streams: int) -> AbstractAsyncContextManager[None]:
    """One HTTP/2 connection requests /healthz and resets the stream, so many times."""
    connection = http2()
    connection.initiate_connection()
    for stream in range(1, 2 * streams, 2):
        connection.send_headers(stream, [*_PAGE, (b":path", b"/healthz")], end_stream=True)
        connection.reset_stream(stream)
    data = connection.data_to_send()
    return crowd(1, partial(say, node.port, data), pause=60)


def no_window(node: Node, connections: int) -> AbstractAsyncContextManager[None]:
    """HTTP/2 connections that each request 99 pages and allow no byte of an answer."""
    connection = http2()
    connection.local_settings[h2.settings.SettingCodes.INITIAL_WINDOW_SIZE] = 0
    connection.initiate_connection()
    for stream in range(1, 2 * 99, 2):
        connection.send_headers(stream, [*_PAGE, (b":path", b"/metrics")], end_stream=True)
    data = connection.data_to_send()
    return crowd(connections, partial(say, node.port, data), pause=60)


def never_read(node: Node, clients: int) -> AbstractAsyncContextManager[None]:
    """Clients that request page after page and read nothing."""
    data = request("/metrics") * 500

    async def ask() -> None:
        async with await connect(node.port, receive_buffer=_SMALL_BUFFER) as stream:
            await stream.send_all(data)
            await trio.sleep_forever()

    return crowd(clients, ask)


def never_send(node: Node, clients: int) -> AbstractAsyncContextManager[None]:
    """Clients that connect and send nothing; a displaced client connects again."""
    return crowd(clients, partial(say, node.port, b""))


def slow_headers(node: Node, clients: int) -> AbstractAsyncContextManager[None]:
    """Clients that send a byte every tenth of a second and never finish their request."""

    async def dribble() -> None:
        async with await connect(node.port) as stream:
            await stream.send_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\nX: ")
            while True:
                await stream.send_all(b"a")
                await trio.sleep(0.1)

    return crowd(clients, dribble)


def hammer(page: str, node: Node, clients: int) -> AbstractAsyncContextManager[None]:
    """Clients that request a page over and over, as fast as they get it."""

    async def ask() -> None:
        async with await connect(node.port) as stream:
            while True:
                await get(stream, page)

    return crowd(clients, ask, pause=0.01)


def come_and_go(node: Node, clients: int) -> AbstractAsyncContextManager[None]:
    """Clients that connect and hang up, as fast as they can."""

    async def knock() -> None:
        async with await connect(node.port):
            pass

    return crowd(clients, knock, pause=0.01)


def pipelined(node: Node, requests: int) -> AbstractAsyncContextManager[None]:
    """One client that sends so many requests before it reads the answers."""
    return crowd(1, partial(say, node.port, request("/healthz") * requests))


def huge_headers(node: Node, mebibytes: int) -> AbstractAsyncContextManager[None]:
    """Eight clients whose requests have so many MiB of headers."""
    data = request("/healthz", *["A: " + "a" * 1000] * 1000 * mebibytes)
    return crowd(8, partial(say, node.port, data))


def huge_bodies(node: Node, mebibytes: int) -> AbstractAsyncContextManager[None]:
    """Eight clients that send so many MiB with their requests."""
    length = mebibytes << 20
    data = request("/healthz", f"Content-Length: {length}") + bytes(length)
    return crowd(8, partial(say, node.port, data))


@asynccontextmanager
async def end_beside(node: Node, clients: int) -> AsyncIterator[None]:
    """Clients that never read, while the daemon gets SIGTERM."""
    async with never_read(node, clients):
        yield
        os.kill(node.agent.pid, signal.SIGTERM)
        with trio.move_on_after(POD_GRACE_SECONDS) as limit:
            await node.agent.ended()
    if limit.cancelled_caught:
        raise HarmDone(f"SIGTERM is not done within {POD_GRACE_SECONDS} s")
