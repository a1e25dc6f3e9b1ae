"""Pages over real sockets, whatever clients do."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
import trio
import trio.testing

from dev.rig.waiting import until
from tests.observe.browser import ask
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.http import (
    Handler,
    HttpLimits,
    HttpRequest,
    HttpResponse,
    routed,
    serve_http,
)
from trio_npu_dra.kit.http.connection import HEAD_LIMIT

Connect: TypeAlias = Callable[..., Awaitable[trio.SocketStream]]


async def hello(request: HttpRequest) -> HttpResponse:
    """A page that shows the request."""
    return HttpResponse(body=f"{request.path} {request.query} {request.accept}\n")


async def broken(_: HttpRequest) -> HttpResponse:
    """A page with a bug."""
    raise RuntimeError("bug")


PAGES = routed({("GET", "/hello"): hello, ("GET", "/broken"): broken})


class Slow:
    """A site with one page that comes when the test allows it, and one that comes immediately."""

    def __init__(self) -> None:
        self.let_go = trio.Event()
        self.pages = routed({("GET", "/slow"): self._respond, ("GET", "/"): hello})
        self._asked = trio.Event()

    async def _respond(self, _: HttpRequest) -> HttpResponse:
        self._asked.set()
        await self.let_go.wait()
        return HttpResponse(body="late\n")

    async def ask(self, client: trio.SocketStream) -> trio.SocketStream:
        """Ask for the slow page, and return the client once the page has its request."""
        self._asked = trio.Event()
        await client.send_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        await self._asked.wait()
        return client


@asynccontextmanager
async def serving(handler: Handler, limits: HttpLimits | None = None) -> AsyncIterator[int]:
    """A server; gives its port."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_http, handler, port=0, limits=limits)
            yield await nursery.start(serve)
            nursery.cancel_scope.cancel()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of the pages."""
    async with serving(PAGES) as port:
        yield port


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections and closes them at the end."""
    async with AsyncExitStack() as clients:

        async def connected(port: int, address: str | None = None) -> trio.SocketStream:
            client = await trio.open_tcp_stream("127.0.0.1", port, local_address=address)
            return await clients.enter_async_context(client)

        yield connected


async def rest(client: trio.SocketStream) -> bytes:
    """All that the server sends until it closes the connection."""
    return b"".join([bytes(chunk) async for chunk in client])


def descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - cheaper than Paths


@pytest.mark.parametrize(
    ("method", "target", "status", "body"),
    [
        ("GET", "/hello?a=1", 200, b"/hello a=1 */*\n"),
        ("HEAD", "/hello", 200, b""),
        ("POST", "/hello", 405, b"this page answers GET, HEAD\n"),
        ("GET", "/other", 404, b"no such page\n"),
        ("GET", "/broken", 500, b"bug in the driver: see its log\n"),
    ],
)
async def test_a_page_answers_its_method_and_path(
    port: int, method: str, target: str, status: int, body: bytes
) -> None:
    """Unknown pages, wrong methods and bugs have the usual statuses."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)

    assert await ask(stream, method, target) == (status, body)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\0\xff" * 500,
        b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n" * 50,
        b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n" + b"a" * 200_000,
    ],
    ids=["noise", "pipelined", "unread body"],
)
async def test_nonsense_and_resets_end_their_own_connection(port: int, nonsense: bytes) -> None:
    """The server lives on and serves other clients."""
    for linger in (True, False):
        client = await trio.open_tcp_stream("127.0.0.1", port)
        with client.socket:
            try:
                await client.send_all(nonsense)
                if linger:
                    with trio.move_on_after(0.05):
                        await client.receive_some()
            except trio.BrokenResourceError:
                pass
            # A reset instead of an orderly end.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    stream = await trio.open_tcp_stream("127.0.0.1", port)
    assert await ask(stream, "GET", "/hello") == (200, b"/hello  */*\n")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /hello\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: %s\r\n" % (b"a" * (HEAD_LIMIT + 1)), 431),
    ],
    ids=["HTTP/2", "noise", "endless headers"],
)
async def test_a_malformed_request_gets_a_status(
    port: int, connect: Connect, head: bytes, status: int
) -> None:
    """The client learns what is wrong."""
    client = await connect(port)
    await client.send_all(head)
    assert (await rest(client)).startswith(b"HTTP/1.1 %d " % status)


async def test_a_client_that_still_sends_sees_the_answer(port: int, connect: Connect) -> None:
    """An unread body must not reset the connection before the answer arrives."""
    client = await connect(port)
    await client.send_all(b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n")
    await client.send_all(b"a" * 500_000)
    answer = await rest(client)
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nallow: GET, HEAD\r\n" in answer


async def test_the_oldest_client_that_asks_nothing_makes_room(connect: Connect) -> None:
    """A client that waits for its answer stays, unless all do; the newest is always served."""
    slow = Slow()
    async with serving(slow.pages, HttpLimits(connections=2)) as port:
        waiting = await slow.ask(await connect(port))
        idle = await connect(port)
        second = await slow.ask(await connect(port))
        assert await idle.receive_some() == b""

        assert await ask(await connect(port), "GET", "/") == (200, b"/  */*\n")
        assert await waiting.receive_some() == b""
        slow.let_go.set()
        assert (await rest(second)).endswith(b"late\n")


async def test_the_address_with_most_clients_makes_room(connect: Connect) -> None:
    """A flood from one address displaces no client of another, not even one that asks nothing."""
    slow = Slow()
    async with serving(slow.pages, HttpLimits(connections=3)) as port:
        prober = await connect(port)
        flood = [await slow.ask(await connect(port, "127.0.0.2")) for _ in range(3)]

        assert await flood[0].receive_some() == b""
        assert await ask(prober, "GET", "/") == (200, b"/  */*\n")


async def test_a_client_that_asks_nothing_or_reads_nothing_is_cut(connect: Connect) -> None:
    """The deadline covers the whole connection."""
    body = bytes(64 << 20)  # more than the kernel buffers

    async def much(_: HttpRequest) -> HttpResponse:
        return HttpResponse(body=body)

    async with serving(much, HttpLimits(seconds=0.1)) as port:
        before = descriptors()
        silent = await connect(port)
        deaf = await connect(port)
        await deaf.send_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

        assert await silent.receive_some() == b""
        await until(lambda: descriptors() == before + 2)  # those of the two clients
        assert len(await rest(deaf)) < len(body)


async def test_a_flood_takes_no_more_descriptors_than_allowed(connect: Connect) -> None:
    """The bound holds for any number of clients, and a page is served after them."""
    async with serving(PAGES, HttpLimits(connections=8)) as port:
        before = descriptors()
        clients = [await connect(port) for _ in range(100)]
        newest = await connect(port)
        answer = await ask(newest, "GET", "/hello")
        assert descriptors() <= before + 101 + 8
        for client in clients:
            await client.aclose()

        assert answer == (200, b"/hello  */*\n")
        await until(lambda: descriptors() == before)


async def test_a_unix_socket_is_for_root_alone_and_goes_with_the_server(folder: Path) -> None:
    """The mode is 0600 while the server runs, and no file stays."""
    path = folder / "control.sock"
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            assert await nursery.start(partial(serve_http, PAGES, socket=path)) == 0
            mode = path.stat().st_mode & 0o777
            answer = await ask(
                await trio.open_unix_socket(str(path)), "GET", "/hello", "text/plain"
            )
            nursery.cancel_scope.cancel()

    assert mode == 0o600
    assert answer == (200, b"/hello  text/plain\n")
    assert not path.exists()


async def test_a_cancelled_server_ends_calls_in_flight(connect: Connect) -> None:
    """A page that never comes does not hold up the daemon's end."""
    slow = Slow()
    async with serving(slow.pages) as port:
        stream = await slow.ask(await connect(port))
    assert await stream.receive_some() == b""


async def test_a_port_that_is_taken_is_the_operators_mistake(port: int) -> None:
    """The message names the port."""
    with pytest.raises(ConfigError, match=str(port)):
        await serve_http(PAGES, port=port)
