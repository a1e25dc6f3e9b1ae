"""Pages over real sockets, whatever clients do."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.observe.browser import ask
from trio_npu_dra.errors import ConfigError
from trio_npu_dra.observe.http import Answer, Request, app, serve_http


async def hello(request: Request) -> Answer:
    """A page that shows what it was asked."""
    return Answer(body=f"{request.path} {request.query} {request.accept}\n")


async def broken(_: Request) -> Answer:
    """A page with a bug."""
    raise RuntimeError("bug")


UPGRADE = b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n"


class Hang:
    """A page that never comes."""

    def __init__(self) -> None:
        self.asked = trio.Event()

    async def __call__(self, _: Request) -> Answer:
        """Answer never."""
        self.asked.set()
        return await trio.sleep_forever()


PAGES = app({("GET", "/hello"): hello, ("GET", "/broken"): broken})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The pages, served."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(partial(serve_http, PAGES, port=0))
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("method", "target", "status", "body"),
    [
        ("GET", "/hello?a=1", 200, b"/hello a=1 */*\n"),
        ("HEAD", "/hello", 200, b""),
        ("POST", "/hello", 405, b"no such page\n"),
        ("GET", "/other", 404, b"no such page\n"),
        ("GET", "/broken", 500, b""),
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
        b"GET /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
        UPGRADE % b"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: bm9uY2U=",
        UPGRADE % b"h2c\r\nHTTP2-Settings: !!!!",
        b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n" * 50,
        b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * 10_000,
    ],
    ids=["noise", "bad chunk", "http2", "websocket", "h2c", "pipelined", "unread body", "headers"],
)
async def test_nonsense_and_resets_end_their_own_connection(port: int, nonsense: bytes) -> None:
    """Other clients are served after it, and the server lives on."""
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


async def test_a_unix_socket_is_for_root_alone_and_goes_with_the_server(folder: Path) -> None:
    """Mode 0600 while served, no file afterwards."""
    path = folder / "control.sock"
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            assert await nursery.start(partial(serve_http, PAGES, socket=path)) == 0
            mode = path.stat().st_mode & 0o777
            answer = await ask(
                trio.SocketStream(await _connected(path)), "GET", "/hello", "text/plain"
            )
            nursery.cancel_scope.cancel()

    assert mode == 0o600
    assert answer == (200, b"/hello  text/plain\n")
    assert not path.exists()


async def test_a_cancelled_server_ends_calls_in_flight_at_once() -> None:
    """A page that never comes does not hold up the daemon's end."""
    page = Hang()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            port = await nursery.start(partial(serve_http, app({("GET", "/"): page}), port=0))
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await page.asked.wait()
            nursery.cancel_scope.cancel()
        async with stream:
            assert await stream.receive_some() == b""


async def test_a_port_that_is_taken_is_the_operators_mistake(port: int) -> None:
    """The message names the port."""
    with pytest.raises(ConfigError, match=str(port)):
        await serve_http(PAGES, port=port)


async def _connected(path: Path) -> trio.socket.SocketType:
    connection = trio.socket.socket(trio.socket.AF_UNIX)
    await connection.connect(str(path))
    return connection
