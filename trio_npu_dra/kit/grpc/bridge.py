"""The one asyncio loop of the process, on top of trio, and its operations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from trio_npu_dra.kit.grpc.client import Channel, open_channel
from trio_npu_dra.kit.grpc.limits import DEFAULT_LIMITS, Limits
from trio_npu_dra.kit.grpc.loop import Loop, open_loop
from trio_npu_dra.kit.grpc.server import serve
from trio_npu_dra.kit.grpc.service import Route
from trio_npu_dra.kit.grpc.sockets import listen_tcp, listen_unix

log = logging.getLogger(__name__)


class Bridge:
    """Serves and dials gRPC over one asyncio loop; made by `open_bridge`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    async def serve_unix(
        self,
        path: Path,
        routes: Sequence[Route],
        *,
        grace_seconds: float = 0,
        limits: Limits = DEFAULT_LIMITS,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer calls on a unix socket until cancelled; started once a peer can connect.

        When cancelled, it removes the socket's file, gives the unary calls in flight
        *grace_seconds* to finish, cancels the others, waits for them and closes all connections.

        Args:
            path: The socket; a stale one is replaced.
            routes: The methods answered; all others are UNIMPLEMENTED.
            grace_seconds: How long a stop may wait for calls in flight.
            limits: What peers may use.
            task_status: Started when the socket listens.

        Raises:
            ConfigError: The path cannot be a socket's.
            StorageError: The file system refuses.
        """
        listener = listen_unix(path)
        await serve(
            self._loop,
            listener,
            routes,
            started=task_status.started,
            limits=limits,
            grace_seconds=grace_seconds,
        )

    async def serve_tcp(
        self,
        port: int,
        routes: Sequence[Route],
        *,
        host: str = "",
        limits: Limits = DEFAULT_LIMITS,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer calls on a TCP port until cancelled; started with the port's number.

        Args:
            port: 0 lets the system choose.
            routes: The methods answered; all others are UNIMPLEMENTED.
            host: An IPv4 address, or empty for all addresses.
            limits: What peers may use.
            task_status: Gets the port.

        Raises:
            ConfigError: The port cannot be used.
        """
        listener = listen_tcp(port, host=host)
        bound: int = listener.socket.getsockname()[1]
        await serve(
            self._loop,
            listener,
            routes,
            started=partial(task_status.started, bound),
            limits=limits,
        )

    @asynccontextmanager
    async def dial(self, target: Path | tuple[str, int]) -> AsyncIterator[Channel]:
        """Open a channel to a unix socket or `(host, port)`, closed on leaving.

        Nothing is sent before the first call; the next call replaces a lost connection.
        """
        async with open_channel(self._loop, target) as channel:
            yield channel


@asynccontextmanager
async def open_bridge() -> AsyncIterator[Bridge]:
    """Run the asyncio loop while inside; leaving waits for all handlers to end.

    An error raised inside leaves as it is, without an exception group.
    """
    async with open_loop() as loop:
        loop.asyncio.set_exception_handler(_on_loop_exception)
        yield Bridge(loop)


def _on_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that a peer's bytes caused; any other error ends the process.

    The context of an error inside a connection (a frame that h2 or grpclib cannot take) has a
    protocol; asyncio has closed that connection.
    """
    if "protocol" in context:
        log.warning(
            "gRPC connection failed",
            extra={"problem": context.get("message"), "error": repr(context.get("exception"))},
        )
    else:
        loop.default_exception_handler(context)
