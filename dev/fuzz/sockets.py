"""A server that lives on from example to example, and a client that sends a test's bytes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from trio_npu_dra.kit.grpc import Channel, Service, listen_unix, open_channel, serve

SECONDS: Final = 10.0


@asynccontextmanager
async def served(path: Path, services: Sequence[Service]) -> AsyncIterator[Channel]:
    """Serve *services* on a unix socket, until left."""
    async with open_channel(path) as channel, trio.open_nursery() as nursery:
        nursery.start_soon(serve, listen_unix(path), services)
        yield channel
        nursery.cancel_scope.cancel()


def send(path: Path, data: bytes, *, pause: Callable[[], object] = lambda: None) -> bytes:
    """Send bytes to a unix socket, end our side, and read until the server hangs up.

    Args:
        path: The socket.
        data: What to send.
        pause: Called before our side ends.

    Raises:
        TimeoutError: The server did not hang up.
    """
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(SECONDS)
        peer.connect(str(path))
        # The server may have read enough, and have answered.
        with suppress(BrokenPipeError, ConnectionResetError):
            peer.sendall(data)
            pause()
            peer.shutdown(socket.SHUT_WR)
        answer = bytearray()
        with suppress(ConnectionResetError):  # the server hung up with unread bytes
            while part := peer.recv(1 << 16):
                answer += part
        return bytes(answer)
