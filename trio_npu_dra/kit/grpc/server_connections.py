"""The connections of a gRPC server: which peers have one, and what ends it.

The server accepts every peer. When all places are taken, it displaces a connection that has had
time to call, the first of

1. those that have not sent a whole request yet, the oldest first: a peer that wants to call does so
   without delay;
2. those without a call, the least recently used first: its client notices and connects again with
   its next call;
3. those that only watch, the newest first: the kubelet's is older than those of a flood;
4. those with other calls, the one with most calls first.

A refused peer could be the kubelet after its restart, and then no pod would start. A displaced
connection could be the kubelet's too, but its next call succeeds.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from typing import Final, cast

import grpclib.protocol
import trio
from h2.errors import ErrorCodes

from trio_npu_dra.kit.grpc.frame_budget import BudgetExceeded
from trio_npu_dra.kit.grpc.limits import Limits
from trio_npu_dra.kit.grpc.server_link import CONFIG, H2_CONFIG, Events, Handler, PeerConnection

log = logging.getLogger(__name__)

FRAMES_AT_ONCE: Final = 16
"""Frames of one connection before others are read: three calls or more."""

SECONDS_BETWEEN_LINES: Final = 60.0
"""Time between two log lines about connections that were closed because of their peers."""


class ServerConnection(grpclib.protocol.H2Protocol):
    """One connection, as asyncio sees it."""

    connection: PeerConnection

    def __init__(self, handler: Handler, connections: Connections) -> None:
        super().__init__(handler, CONFIG, H2_CONFIG)
        self._connections = connections
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the peer; instead of grpclib's, which has no limits and a timer of two hours."""
        self.transport = cast("asyncio.Transport", transport)
        self.connection = PeerConnection(self.transport, self._connections.limits)
        self.connection.flush()
        self.processor = Events(self.handler, self.connection)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Work through what the peer sent: some frames now, the others in turn with its peers."""
        is_next = not self._unread
        self._unread += data
        if is_next:
            self.read_some()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel its calls."""
        self._unread = b""
        self._connections.forget(self)
        super().connection_lost(exc)

    def hang_up(self, code: ErrorCodes | None = ErrorCodes.NO_ERROR) -> None:
        """End the connection and its calls.

        Args:
            code: Of the GOAWAY, which tells a client the calls that were not begun, so that it
                repeats them; None sends none but h2's own.
        """
        self._unread = b""
        self._connections.forget(self)
        if not self.connection.is_closing():
            if code is not None:
                self.connection.h2.close_connection(code)
            self.connection.flush()
        self.processor.close("closed by the server")
        if self.transport.get_write_buffer_size():  # which the peer may never read
            self.transport.abort()

    def read_some(self) -> None:
        """Work through some of the frames that were read."""
        if not self._unread:
            return
        try:
            size = self.connection.budget.read(self._unread, FRAMES_AT_ONCE)
            part, self._unread = self._unread[:size], self._unread[size:]
            for event in self.connection.feed(part):
                self.processor.process(event)
        except BudgetExceeded as error:
            self._connections.blame(self, str(error), ErrorCodes.ENHANCE_YOUR_CALM)
        except Exception as error:  # noqa: BLE001 - h2 and grpclib raise many types for bad input
            self._connections.blame(self, repr(error)[:200], None)
        else:
            if not self.connection.is_closing():
                self.connection.flush()
            if self._unread:
                self.transport.pause_reading()
                self._connections.read_later(self)
            else:
                self.transport.resume_reading()


class Connections:
    """All connections of one server.

    Args:
        limits: What they may take.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: set[ServerConnection] = set()
        self._unread = deque[ServerConnection]()
        self._next_line = -math.inf

    async def place(self) -> None:
        """Wait for a place for one more; without one, another connection is displaced."""
        while len(self._open) >= self.limits.connections:
            last = min(self._open, key=lambda peer: peer.connection.worth())
            wait = last.connection.since + self.limits.newcomer_seconds - trio.current_time()
            if wait > 0:
                await trio.sleep(wait)
            else:
                self._log_closed(f"more than {self.limits.connections} connections at once")
                last.hang_up()

    def add(self, connection: ServerConnection) -> None:
        """Count a new connection."""
        self._open.add(connection)

    def forget(self, connection: ServerConnection) -> None:
        """Remove a connection that ends."""
        self._open.discard(connection)

    def read_later(self, connection: ServerConnection) -> None:
        """Let a connection work through more of what it has read.

        One connection does so in a turn of the loop, however many would: nothing else waits long.
        """
        if not self._unread:
            asyncio.get_running_loop().call_soon(self._read_next)
        self._unread.append(connection)

    def blame(self, connection: ServerConnection, reason: str, code: ErrorCodes | None) -> None:
        """Close a connection because of what its peer did."""
        self._log_closed(reason)
        connection.hang_up(code)

    def close_overdue(self, now: float) -> None:
        """Close the connections whose time is over."""
        for peer in tuple(self._open):
            link = peer.connection
            if peer.transport.is_closing():  # it waits for a peer that does not read
                peer.transport.abort()
            elif now - link.blocked_since >= self.limits.reply_seconds:
                self.blame(peer, "replies are not read", ErrorCodes.NO_ERROR)
            elif not link.greeted and now - link.since >= self.limits.greeting_seconds:
                self.blame(peer, "no word of HTTP/2", ErrorCodes.NO_ERROR)
        idle = [peer for peer in self._open if not peer.processor.streams]
        idle.sort(key=lambda peer: peer.connection.used, reverse=True)
        for peer in idle[self.limits.kept_idle :]:
            if now - peer.connection.used >= self.limits.idle_seconds:
                peer.hang_up()

    def cancel_calls(self) -> None:
        """Cancel the calls of all connections."""
        for peer in self._open:
            peer.handler.close()

    def close(self) -> None:
        """Close all connections; a peer that does not read loses the unsent bytes.

        No GOAWAY is sent: grpclib's client drops a reply that it reads together with one.
        """
        for peer in tuple(self._open):
            peer.hang_up(None)

    def _read_next(self) -> None:
        connection = self._unread.popleft()
        if self._unread:
            asyncio.get_running_loop().call_soon(self._read_next)
        connection.read_some()

    def _log_closed(self, reason: str) -> None:
        now = trio.current_time()
        if now >= self._next_line:
            self._next_line = now + SECONDS_BETWEEN_LINES
            log.warning("gRPC connection closed", extra={"reason": reason})
