"""The connections of a gRPC server: which peers have one, what they may send, and what ends it.

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

import logging
import math
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import h2.events
import h2.exceptions
import trio
from grpclib.const import Status
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings

from trio_npu_dra.kit.grpc.frame_budget import BudgetExceeded, FrameBudget
from trio_npu_dra.kit.grpc.headers import Decoder, ReplyEncoder
from trio_npu_dra.kit.grpc.http2 import Connection, Protocol
from trio_npu_dra.kit.grpc.limits import Limits
from trio_npu_dra.kit.grpc.service import RpcError
from trio_npu_dra.kit.grpc.stream import Peer, Stream

log = logging.getLogger(__name__)

Answer: TypeAlias = "Callable[[PeerConnection, Stream[Any, Any]], Awaitable[None]]"
"""Answers one call, to its end."""

FRAMES_AT_ONCE: Final = 16
"""Frames of one connection before others are read: three calls or more."""

TABLE_BYTES: Final = 4096
"""Size of the header table that we keep for a peer, HTTP/2's default; a peer may ask for 4 GiB."""

SECONDS_BETWEEN_LINES: Final = 60.0
"""Time between two log lines about connections that were closed because of their peers."""


class PeerConnection:
    """One connection, and how its peer uses it.

    Args:
        accepted: Its socket; does not block.
        address: Of its peer.
        connections: All of the server.
        answer: Answers its calls.

    Attributes:
        since: When it was made.
        used: When it had its last call, or was made.
        greeted: Whether it speaks HTTP/2.
        streams: The calls that have begun and not ended, by number.
    """

    def __init__(
        self, accepted: socket.socket, address: Any, connections: Connections, answer: Answer
    ) -> None:
        self.since = self.used = trio.current_time()
        self.greeted = False
        self.streams: dict[int, Stream[Any, Any]] = {}
        self._connections = connections
        self._limits = connections.limits
        self._answer = answer
        self._http2 = Connection(accepted, _limited(self._limits))
        self._peer = Peer(address)
        self._budget = FrameBudget(self._limits)
        self._scope = trio.CancelScope()
        self._has_request = False
        self._unary_calls = self._watches = 0

    @property
    def blocked_since(self) -> float:
        """Since when the peer does not read what we send; infinity if it does."""
        return self._http2.blocked_since

    async def run(self) -> None:
        """Serve the peer until it hangs up or is hung up on; then its calls are cancelled."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._http2.keep_sending)
                    self._http2.flush()
                    while data := await self._http2.receive():
                        await self._read(data, nursery)
                    self._end()  # at once: handlers may clean up for long
                    nursery.cancel_scope.cancel()
        finally:
            self._end()

    def hang_up(self, reason: str = "", code: ErrorCodes | None = ErrorCodes.NO_ERROR) -> None:
        """End the connection and its calls.

        Args:
            reason: For the log, if the peer is to blame.
            code: Of the GOAWAY, which also tells the peer which calls were not begun; None where
                the peer or h2 has said goodbye.
        """
        if reason:
            self._connections.log_closed(reason)
        if code is None:
            self._http2.flush()
        else:
            self._http2.say_goodbye(code)
        self._scope.cancel()
        self._end()

    def _end(self) -> None:
        """Give back the place and the socket."""
        self._connections.forget(self)
        self._http2.close()

    @contextmanager
    def answering(self, *, watch: bool) -> Iterator[None]:
        """Wrap a call whose request is complete.

        Raises:
            RpcError: The peer has too many watches.
        """
        self._has_request = True
        if watch and self._watches >= self._limits.watches:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED,
                f"a connection may have {self._limits.watches} streaming calls at once",
            )
        self._watches += watch
        self._unary_calls += not watch
        self.used = trio.current_time()
        try:
            yield
        finally:
            self._watches -= watch
            self._unary_calls -= not watch
            self.used = trio.current_time()

    def worth(self) -> tuple[int, int, float]:
        """The connection with the least worth is displaced first; the module says the order."""
        if self._unary_calls or self._watches:
            return (3 if self._unary_calls else 2, -self._unary_calls, -self.since)
        return (int(self._has_request), 0, self.used)

    async def _read(self, data: bytes, nursery: trio.Nursery) -> None:
        """Work through what the peer sent, some frames at a time, in turn with other busy peers."""
        try:
            data = self._read_some(data, nursery)
            while data:
                async with self._connections.turn:
                    data = self._read_some(data, nursery)
        except BudgetExceeded as error:
            self.hang_up(str(error), ErrorCodes.ENHANCE_YOUR_CALM)
        except h2.exceptions.ProtocolError as error:
            self.hang_up(repr(error)[:200], None)
        except Exception as error:  # noqa: BLE001 - h2 raises many other types for bad input
            self.hang_up(repr(error)[:200], ErrorCodes.PROTOCOL_ERROR)

    def _read_some(self, data: bytes, nursery: trio.Nursery) -> bytes:
        size = self._budget.read(data, FRAMES_AT_ONCE)
        for event in self._http2.h2.receive_data(data[:size]):
            self._process(event, nursery)
        self._http2.flush()
        return data[size:]

    def _process(self, event: h2.events.Event, nursery: trio.Nursery) -> None:
        """Do what a frame asks for; unknown ones are ignored (RFC 9113, 5.5), but counted."""
        match event:
            case h2.events.RequestReceived():
                self._begin(event.stream_id, event.headers, nursery)
            case h2.events.WindowUpdated():
                self._http2.wake_senders()
            case h2.events.RemoteSettingsChanged():
                self._settle(event)
            case h2.events.ConnectionTerminated():
                self.hang_up(code=None)
            case h2.events.DataReceived() if event.stream_id not in self.streams:
                self._http2.h2.acknowledge_received_data(
                    event.flow_controlled_length, event.stream_id
                )
        if stream := self.streams.get(getattr(event, "stream_id", None) or 0):
            match event:
                case h2.events.DataReceived():
                    stream.inbound.feed(event.data, event.flow_controlled_length)
                case h2.events.StreamEnded():
                    stream.inbound.end()
                case h2.events.StreamReset():
                    stream.cancel_handler()

    def _begin(self, number: int, headers: Any, nursery: trio.Nursery) -> None:
        if self._connections.are_closing:
            # Unlike a cancelled call, one that was refused may be repeated elsewhere.
            self._http2.reset(number, ErrorCodes.REFUSED_STREAM)
            return
        self.streams[number] = Stream(
            self._http2, number, headers, peer=self._peer, on_reply=self._budget.replied
        )
        nursery.start_soon(self._run_call, number)

    async def _run_call(self, number: int) -> None:
        try:
            await self._answer(self, self.streams[number])
        finally:
            self.streams.pop(number).inbound.close()

    def _settle(self, event: h2.events.RemoteSettingsChanged) -> None:
        """Note that the peer speaks HTTP/2; limit what its settings make us keep."""
        self.greeted = True
        h2_ = self._http2.h2
        h2_.encoder.header_table_size = min(h2_.encoder.header_table_size, TABLE_BYTES)
        for code in event.changed_settings:
            if not isinstance(code, SettingCodes):
                del h2_.remote_settings[code]
        self._http2.wake_senders()


class Connections:
    """All connections of one server.

    Args:
        limits: What they may take.

    Attributes:
        turn: Held while one that has sent much is read, so that nothing else waits long.
        are_closing: Whether calls begin no more.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.turn = trio.Lock()
        self.are_closing = False
        self._open: set[PeerConnection] = set()
        self._next_line = -math.inf

    async def place(self) -> None:
        """Wait for a place for one more; without one, another connection is displaced."""
        while len(self._open) >= self.limits.connections:
            last = min(self._open, key=PeerConnection.worth)
            wait = last.since + self.limits.newcomer_seconds - trio.current_time()
            if wait > 0:
                await trio.sleep(wait)
            else:
                last.hang_up(f"more than {self.limits.connections} connections at once")

    def add(self, connection: PeerConnection) -> None:
        """Count a new connection."""
        self._open.add(connection)

    def forget(self, connection: PeerConnection) -> None:
        """Remove a connection that ends."""
        self._open.discard(connection)

    def close_overdue(self, now: float) -> None:
        """Close the connections whose time is over."""
        for peer in tuple(self._open):
            if now - peer.blocked_since >= self.limits.reply_seconds:
                peer.hang_up("replies are not read")
            elif not peer.greeted and now - peer.since >= self.limits.greeting_seconds:
                peer.hang_up("no word of HTTP/2")
        idle = [peer for peer in self._open if not peer.streams]
        idle.sort(key=lambda peer: peer.used, reverse=True)
        for peer in idle[self.limits.kept_idle :]:
            if now - peer.used >= self.limits.idle_seconds:
                peer.hang_up()

    def cancel_calls(self) -> None:
        """Cancel the calls of all connections; no others begin."""
        self.are_closing = True
        for peer in self._open:
            for stream in peer.streams.values():
                stream.cancel_handler()

    def close(self) -> None:
        """Close all connections; a peer that does not read loses the unsent bytes."""
        for peer in tuple(self._open):
            peer.hang_up()

    def log_closed(self, reason: str) -> None:
        """Log, now and then, why a connection was closed."""
        now = trio.current_time()
        if now >= self._next_line:
            self._next_line = now + SECONDS_BETWEEN_LINES
            log.warning("gRPC connection closed", extra={"reason": reason})


def _limited(limits: Limits) -> Protocol:
    """Our side of HTTP/2; its windows are the default ones, 64 KiB a connection and a stream."""
    protocol = Protocol(is_client=False)
    protocol.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        },
    )
    protocol.decoder = Decoder()
    protocol.decoder.max_header_list_size = limits.header_bytes
    protocol.encoder = ReplyEncoder()
    protocol.initiate_connection()
    return protocol
