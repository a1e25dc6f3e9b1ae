"""A proxy between the daemon and its API server that can lie."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import trio

Lie: TypeAlias = Callable[[bytes], AsyncGenerator[bytes, None] | None]
"""Answers a request, part by part, before the connection ends; None gives the true answer."""


class Front:
    """Passes bytes on between daemon and API server.

    Args:
        server: The API server's socket.
    """

    def __init__(self, server: Path) -> None:
        self._server = server
        self._lie: Lie | None = None
        self._connections: set[trio.CancelScope] = set()

    @asynccontextmanager
    async def lying(self, lie: Lie) -> AsyncIterator[None]:
        """Lie while inside, also on connections that are open already."""
        self._lie = lie
        self._hang_up()
        try:
            yield
        finally:
            self._lie = None
            self._hang_up()

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection of the daemon."""
        with trio.CancelScope() as scope, suppress(trio.BrokenResourceError):
            self._connections.add(scope)
            try:
                async with client, await trio.open_unix_socket(str(self._server)) as server:
                    await self._talk(client, server)
            finally:
                self._connections.discard(scope)

    async def _talk(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_copy, server, client)
            with suppress(trio.BrokenResourceError):
                while asked := bytes(await client.receive_some(1 << 16)):
                    parts = self._lie(asked) if self._lie is not None else None
                    if parts is not None:
                        async with aclosing(parts):
                            async for part in parts:
                                await client.send_all(part)
                        break
                    await server.send_all(asked)
            nursery.cancel_scope.cancel()

    def _hang_up(self) -> None:
        for scope in self._connections:
            scope.cancel()


async def _copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        while data := await source.receive_some(1 << 16):
            await target.send_all(data)


@asynccontextmanager
async def open_front(server: Path, path: Path) -> AsyncIterator[Front]:
    """Open a proxy before *server*, on the unix socket *path*."""
    front = Front(server)
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(str(path))
    listener.listen(1024)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, front.serve, [trio.SocketListener(listener)])
        yield front
        nursery.cancel_scope.cancel()
