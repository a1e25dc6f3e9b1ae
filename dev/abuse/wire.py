"""HTTP/1.1 and HTTP/2 over plain sockets, as much as an attacker needs."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import h2.config
import h2.connection
import h2.exceptions
import trio


async def connect(port: int, *, receive_buffer: int = 0) -> trio.SocketStream:
    """Connect to a port of this machine.

    With a *receive_buffer* the kernel keeps no more bytes for a client that does not read.
    """
    connection = trio.socket.socket()
    try:
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await connection.connect(("127.0.0.1", port))
    except BaseException:
        connection.close()
        raise
    return trio.SocketStream(connection)


def request(path: str, *more: str) -> bytes:
    """A GET with *more* header lines."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: node", *more, "", ""]).encode()


async def get(stream: trio.SocketStream, path: str) -> tuple[int, bytes]:
    """Request a page and read the whole answer.

    Returns:
        Status and body.

    Raises:
        trio.BrokenResourceError: The other side hung up within the answer.
    """
    await stream.send_all(request(path))
    answer = bytearray()
    while b"\r\n\r\n" not in answer:
        answer += await more(stream)
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().lower().split("\r\n")
    lengths = [line.partition(":")[2] for line in lines if line.startswith("content-length:")]
    length = int(lengths[0] if lengths else 0)
    while len(body) < length:
        body += await more(stream)
    return int(status.split()[1]), bytes(body)


async def read_all(stream: trio.SocketStream) -> None:
    """Read until the other side hangs up, in whatever way."""
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some(1 << 16):
            pass


async def say(port: int, data: bytes) -> None:
    """Send *data* on a new connection, read what comes, and stay until displaced."""
    async with await connect(port) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(_send, stream, data)
        await read_all(stream)
        nursery.cancel_scope.cancel()


async def _send(stream: trio.SocketStream, data: bytes) -> None:
    """Send as much as the other side takes before it hangs up."""
    with suppress(trio.BrokenResourceError):
        await stream.send_all(data)


async def more(stream: trio.SocketStream) -> bytes:
    """Some bytes that come.

    Raises:
        trio.BrokenResourceError: None comes any more.
    """
    data = bytes(await stream.receive_some(1 << 16))
    if not data:
        raise trio.BrokenResourceError("the other side hung up")
    return data


def http2() -> h2.connection.H2Connection:
    """The client's end of an HTTP/2 connection, with nothing sent yet."""
    return h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))


@asynccontextmanager
async def crowd(
    clients: int, one: Callable[[], Awaitable[None]], *, pause: float = 1.0
) -> AsyncIterator[None]:
    """Run so many clients at once; each connects again when it is displaced.

    Args:
        clients: How many.
        one: The life of one connection.
        pause: Seconds before a client connects again.
    """

    async def insist() -> None:
        while True:
            with suppress(OSError, trio.BrokenResourceError, h2.exceptions.ProtocolError):
                await one()  # until it is displaced, or refused
            await trio.sleep(pause)

    async with trio.open_nursery() as nursery:
        for _ in range(clients):
            nursery.start_soon(insist)
        yield
        nursery.cancel_scope.cancel()
