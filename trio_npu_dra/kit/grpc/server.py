"""A gRPC server: connections in a nursery, a task for each call, stopped in order.

Only root can connect to a unix socket, so a peer there may have as many connections as it likes,
for as long as it likes. A TCP port is open to the node's network: its peers share a few
connections, and their messages are small.
"""

from __future__ import annotations

import errno
import logging
import math
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import h2.events
import trio
from grpclib.const import Handler, Status
from grpclib.encoding.base import GRPC_CONTENT_TYPE
from grpclib.exceptions import GRPCError
from grpclib.metadata import decode_timeout, encode_grpc_message
from grpclib.stream import StreamIterator
from h2.errors import ErrorCodes

from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc.http2 import Call, Connection, Headers, StreamEnded
from trio_npu_dra.kit.grpc.messages import encode
from trio_npu_dra.kit.grpc.service import RpcError, Service
from trio_npu_dra.kit.grpc.sockets import Listener

log = logging.getLogger(__name__)

ACCEPT_PAUSE_SECONDS: Final = 1.0
"""Pause before accepting again when the process or the system has no room for a connection."""

SECONDS_BETWEEN_LINES: Final = 60.0
"""Time between two log lines about peers."""

STATUS_TEXT_LIMIT: Final = 1024
"""Characters of an error's text: it travels in an HTTP/2 header."""

_INITIAL: Final = [(":status", "200"), ("content-type", f"{GRPC_CONTENT_TYPE}+proto")]
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the peers of a socket may use.

    Attributes:
        connections: Open at once; one more displaces the oldest.
        idle_seconds: How long a peer may neither send nor read.
        message_bytes: Size of a request.
    """

    connections: int
    idle_seconds: float
    message_bytes: int


LOCAL: Final = Limits(sys.maxsize, math.inf, 4 << 20)
"""Of a unix socket; the size is gRPC's default."""

NETWORK: Final = Limits(8, 30, 1 << 10)
"""Of a TCP port, where probes ask: they connect, call once and leave."""


async def serve(
    listener: Listener, services: Sequence[Service], *, grace_seconds: float = 0
) -> None:
    """Answer calls until cancelled.

    When cancelled, it removes the listener's file, gives the unary calls in flight *grace_seconds*
    to finish, closes all connections, and waits for the calls that this has cancelled.

    Args:
        listener: Where peers connect; it is closed at the end.
        services: Their methods are answered; all others are UNIMPLEMENTED.
        grace_seconds: How long a stop may wait for calls in flight.
    """
    server = _Server(services, LOCAL if listener.path else NETWORK)
    until_stopped = trio.CancelScope(shield=True)

    async def keep_serving() -> None:
        with until_stopped:
            async with trio.open_nursery() as connections:
                await server.accept(listener.socket, connections)

    with listener.socket:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_serving)
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    # Connected peers may call until the end; new ones cannot connect.
                    await disk.run(listener.withdraw)
                    with trio.move_on_after(grace_seconds):
                        await server.unary.wait_until(lambda count: not count)
                    until_stopped.cancel()


class _Stream(Call, StreamIterator[Any]):
    """A call, as its handler sees it: what betterproto2's services use of grpclib's `Stream`.

    Iterating gives its requests.

    Attributes:
        scope: Around its handler.
    """

    handler: Handler

    def __init__(self, connection: Connection, number: int, message_bytes: int) -> None:
        super().__init__(connection, number, message_bytes)
        self.scope = trio.CancelScope()
        self._has_headers = False

    def begin(self, handler: Handler) -> None:
        """Say whose call it is; raises RpcError if its deadline cannot be read."""
        self.handler = handler
        if (timeout := self.headers.get("grpc-timeout")) is not None:
            try:
                self.scope.deadline = trio.current_time() + float(decode_timeout(timeout))
            except (ValueError, OverflowError) as error:
                text = f"the header grpc-timeout is wrong: {timeout[:20]!r}"
                raise RpcError(Status.UNKNOWN, text) from error

    def lose(self, reason: str) -> None:
        """End the call at once: nobody waits for its answer."""
        super().lose(reason)
        self.scope.cancel()

    async def recv_message(self) -> Any:
        """The next request; None when there are no more.

        Raises:
            RpcError: It is refused.
        """
        request = await self.message(self.handler.request_type)
        await trio.lowlevel.checkpoint_if_cancelled()  # the peer may have reset it meanwhile
        if request is None and not self.handler.cardinality.client_streaming:
            raise RpcError(Status.INTERNAL, "the request has no message")
        return request

    async def send_message(self, message: Any) -> None:
        """Send a reply, as fast as the peer reads it.

        Raises:
            StreamTerminatedError: The peer has ended the call, and a shield hides it.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._has_headers:
            self._connection.send_headers(self, _INITIAL, end=False)
            self._has_headers = True
        await self._connection.send_data(self, encode(message, self.handler.reply_type))

    def finish(self, status: Status, text: str) -> None:
        """Send the trailers.

        Raises:
            StreamEnded: Nobody waits for them any more.
        """
        headers = [] if self._has_headers else [*_INITIAL]
        headers.append(("grpc-status", str(status.value)))
        if text:
            sendable = text[:STATUS_TEXT_LIMIT].encode(errors="replace").decode()
            headers.append(("grpc-message", encode_grpc_message(sendable)))
        self._connection.send_headers(self, headers, end=True)
        self._connection.flush()


class _Server:
    """Attributes: `unary` is how many unary calls run."""

    def __init__(self, services: Sequence[Service], limits: Limits) -> None:
        self.unary = Observable(0)
        self._limits = limits
        self._next_line = -math.inf
        self._open: list[trio.CancelScope] = []  # of the connections, the oldest first
        self._handlers = {
            path: handler for service in services for path, handler in service.__mapping__().items()
        }

    async def accept(self, listener: socket.socket, connections: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                accepted, _ = listener.accept()
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._warn("cannot accept gRPC connections", error)
                    await trio.sleep(ACCEPT_PAUSE_SECONDS)
                continue  # its peer may have gone
            accepted.setblocking(False)
            if len(self._open) >= self._limits.connections:
                self._open.pop(0).cancel()
            scope = trio.CancelScope()
            self._open.append(scope)
            connections.start_soon(self._serve_peer, accepted, scope)

    async def _serve_peer(self, accepted: socket.socket, scope: trio.CancelScope) -> None:
        connection = Connection(accepted, is_client=False)
        with scope:
            async with trio.open_nursery() as calls:
                calls.start_soon(connection.keep_sending)
                try:
                    await self._read(connection, calls)
                finally:
                    # At once: its calls may clean up for long.
                    connection.close()
                    calls.cancel_scope.cancel()
                    with suppress(ValueError):  # it was displaced
                        self._open.remove(scope)

    async def _read(self, connection: Connection, calls: trio.Nursery) -> None:
        """Begin calls until the peer hangs up, is silent for too long, or sends nonsense."""
        try:
            while True:
                events: list[h2.events.Event] = []
                with trio.move_on_after(self._limits.idle_seconds):
                    await connection.until_sent()  # we read no more than the peer does
                    events = await connection.receive()
                if not events:
                    return
                for event in events:
                    if isinstance(event, h2.events.RequestReceived):
                        call = _Stream(connection, event.stream_id, self._limits.message_bytes)
                        call.headers.update(cast("Headers", event.headers))
                        calls.start_soon(self._answer, call)
                    connection.handle(event)
        except Exception as error:  # noqa: BLE001 - h2 raises many types for bad bytes
            self._warn("gRPC connection closed", error)
            connection.close(getattr(error, "error_code", ErrorCodes.PROTOCOL_ERROR))

    def _warn(self, what: str, error: Exception) -> None:
        """Log a problem, at most once a minute: the network may reach the port."""
        if trio.current_time() >= self._next_line:
            self._next_line = trio.current_time() + SECONDS_BETWEEN_LINES
            log.warning(what, extra={"error": repr(error)[:200]})

    async def _answer(self, call: _Stream) -> None:
        """Run one call to its trailers."""
        try:
            with suppress(StreamEnded):  # its peer has ended it
                try:
                    await self._run(call)
                except GRPCError as error:
                    call.finish(error.status, error.message or "")
        finally:
            call.close(ErrorCodes.NO_ERROR)

    async def _run(self, call: _Stream) -> None:
        """Run a call.

        Raises:
            GRPCError: It was refused, or its handler chose this end.
        """
        path = call.headers.get(":path", "")
        handler = self._handlers.get(path)
        if handler is None:
            raise RpcError(Status.UNIMPLEMENTED, "unknown method")
        call.begin(handler)
        unary = 0 if handler.cardinality.server_streaming else 1
        with call.scope:
            self.unary.set(self.unary.value + unary)
            try:
                await handler.func(call)
                # A shielded part of it may have run to its end after the call was cancelled.
                await trio.lowlevel.checkpoint_if_cancelled()
                call.finish(Status.OK, "")
            except (GRPCError, StreamEnded):
                raise
            except Exception as error:
                # A bug ends only its own call: the kubelet gets INTERNAL and retries. If the daemon
                # died instead, every pod's next call would fail.
                log.exception("a gRPC handler failed", extra={"method": path})
                raise RpcError(Status.INTERNAL, f"bug in the driver: {error!r}") from error
            finally:
                self.unary.set(self.unary.value - unary)
        if call.scope.cancelled_caught:
            raise RpcError(Status.DEADLINE_EXCEEDED, "the deadline of the call has passed")
