"""Counts the bytes between clients and the API server, those of TLS included."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import trio


class Relay:
    """Passes TCP connections on.

    Attributes:
        connections: How many there have been so far.
        bytes: What they have `sent` and `received` so far, TLS included.

    Args:
        host: Where it listens, and where connections go.
        port: The port where connections go.
    """

    def __init__(self, host: str, port: int) -> None:
        self.connections = 0
        self.bytes: Counter[str] = Counter()
        self._host = host
        self._port = port

    async def serve(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Pass on what comes until cancelled; started with the port where it listens."""
        (listener,) = await trio.open_tcp_listeners(0, host=self._host)
        task_status.started(listener.socket.getsockname()[1])
        await trio.serve_listeners(self._pass_on, [listener])

    async def _pass_on(self, client: trio.SocketStream) -> None:
        """Pass one connection on; when one side ends it, it ends for the other."""
        try:
            server = await trio.open_tcp_stream(self._host, self._port)
        except OSError:  # the API server is away, so the client is hung up on
            return
        self.connections += 1
        async with server, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, client, server, "sent", nursery.cancel_scope)
            nursery.start_soon(self._copy, server, client, "received", nursery.cancel_scope)

    async def _copy(
        self,
        source: trio.SocketStream,
        target: trio.SocketStream,
        way: str,
        connection: trio.CancelScope,
    ) -> None:
        with suppress(trio.BrokenResourceError):
            async for chunk in source:
                self.bytes[way] += len(chunk)
                await target.send_all(chunk)
        connection.cancel()
