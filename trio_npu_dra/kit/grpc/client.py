"""A gRPC client: calls side by side over one connection, as the self-check and tests make them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Generic

import h2.events
import trio
from grpclib.const import Status
from grpclib.encoding.base import GRPC_CONTENT_TYPE
from grpclib.metadata import decode_grpc_message, encode_timeout
from h2.errors import ErrorCodes

from trio_npu_dra.kit.grpc.http2 import Connection, Inbound, Protocol, StreamEnded
from trio_npu_dra.kit.grpc.known_fields import read_known
from trio_npu_dra.kit.grpc.messages import PREFIX, encode
from trio_npu_dra.kit.grpc.service import ReplyT, RequestT, RpcError, StreamMethod, UnaryMethod

_SKIPPED_BYTES: Final = 16 << 10


class _Reply:
    """What comes back of one call."""

    def __init__(self, inbound: Inbound) -> None:
        self.inbound = inbound
        self.is_asked = False  # whether the request was sent, whole
        self.asking = trio.CancelScope()
        self._broken = ""
        self._headers: dict[str, str] = {}

    def note(self, headers: Any) -> None:
        """Take headers or trailers."""
        self._headers.update(headers)

    def end(self) -> None:
        """Note that the server has answered; it need not have read all of the request."""
        self.inbound.end()
        self.asking.cancel()

    def lose(self, reason: str) -> None:
        """End it without a status, unless it has ended."""
        if not self.inbound.is_whole:
            self._broken = reason
            self.end()

    async def message(self, message_type: type[ReplyT]) -> ReplyT | None:
        """The next message; None when the call has ended well.

        Raises:
            RpcError: It has ended otherwise.
        """
        prefix = await self.inbound.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            self.check()
            if prefix:
                raise RpcError(Status.INTERNAL, "the reply ends within a message")
            return None
        is_compressed, size = PREFIX.unpack(prefix)
        if is_compressed:
            raise RpcError(Status.INTERNAL, "the reply is compressed, which we did not ask for")
        return await read_known(self._read, size, message_type)

    async def until_end(self) -> None:
        """Wait for the status, and drop messages that come before it; raises as `message`."""
        while await self.inbound.read(_SKIPPED_BYTES):
            pass
        self.check()

    def check(self) -> None:
        """Raise RpcError unless the call has ended with OK."""
        if self._broken:
            raise RpcError(Status.UNAVAILABLE, self._broken)
        found = self._headers.get("grpc-status", "")
        if not found:
            http_status = self._headers.get(":status", "none")
            raise RpcError(Status.UNKNOWN, f"no gRPC status; the status of HTTP is {http_status}")
        try:
            status = Status(int(found))
        except ValueError:
            status = Status.UNKNOWN
        if status is not Status.OK:
            text = decode_grpc_message(self._headers.get("grpc-message", "no message"))
            raise RpcError(status, text)

    async def _read(self, size: int) -> bytes:
        data = await self.inbound.read(size)
        if len(data) < size:
            self.check()
            raise RpcError(Status.INTERNAL, "the reply ends within a message")
        return data


class _Connection:
    """A connection to the server.

    Attributes:
        is_open: Whether calls can begin.
        replies: Of the calls that have not ended, by the number of their stream.
    """

    def __init__(self, peer: socket.socket) -> None:
        protocol = Protocol(is_client=True)
        protocol.initiate_connection()
        self.http2 = Connection(peer, protocol)
        self.is_open = True
        self.replies: dict[int, _Reply] = {}
        self._has_settings = False

    async def run(self) -> None:
        """Receive replies, until the server hangs up."""
        reason = "the connection was closed"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.http2.keep_sending)
                self.http2.flush()
                try:
                    while self.is_open and (data := await self.http2.receive()):
                        for event in self.http2.h2.receive_data(data):
                            self._process(event)
                        self.http2.flush()
                except Exception as error:  # noqa: BLE001 - h2 raises many types for bad input
                    reason = str(error) or repr(error)
                nursery.cancel_scope.cancel()
        finally:
            self.is_open = False
            for reply in self.replies.values():
                reply.lose(reason)
            self.http2.close()

    async def begin(self, headers: list[tuple[str, str]]) -> int:
        """Begin a call, when the server allows one more; returns the number of its stream.

        Raises:
            StreamEnded: The connection has ended.
        """
        protocol = self.http2.h2
        while self.is_open and not (
            self._has_settings
            and protocol.open_outbound_streams < protocol.remote_settings.max_concurrent_streams
        ):
            await self.http2.until_change()
        if not self.is_open:
            raise StreamEnded("the connection was closed")
        number: int = protocol.get_next_available_stream_id()
        self.http2.send_headers(number, headers, end=False)
        self.replies[number] = _Reply(Inbound(self.http2, number))
        return number

    def end(self, number: int) -> None:
        """Forget a call; one that has not ended is reset, so that the server notices."""
        reply = self.replies.pop(number)
        reply.inbound.close()
        if not (reply.is_asked and reply.inbound.is_whole):
            self.http2.reset(number, ErrorCodes.CANCEL)
        self.http2.wake_senders()

    def _process(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RemoteSettingsChanged():
                self._has_settings = True
                self.http2.wake_senders()
            case h2.events.WindowUpdated():
                self.http2.wake_senders()
            case h2.events.ConnectionTerminated():
                self.is_open = False
        reply = self.replies.get(getattr(event, "stream_id", None) or 0)
        if reply is None:
            return
        match event:
            case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                reply.note(event.headers)
            case h2.events.DataReceived():
                reply.inbound.feed(event.data, event.flow_controlled_length)
            case h2.events.StreamEnded():
                reply.end()
                self.http2.wake_senders()
            case h2.events.StreamReset():
                reply.lose("the server has reset the call")
                self.http2.wake_senders()


class Channel:
    """Calls to one server, side by side over one connection; made by `open_channel`."""

    def __init__(self, target: Path | tuple[str, int], nursery: trio.Nursery) -> None:
        self._target = target
        self._nursery = nursery
        self._connection: _Connection | None = None
        self._connecting = trio.Lock()

    async def unary(
        self,
        method: UnaryMethod[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_seconds: float,
    ) -> ReplyT:
        """Call *method* once; a cancelled call is reset, so that the server notices.

        However long the reply is, no more of it is kept than what its type knows.

        Raises:
            RpcError: The status of the answer, DEADLINE_EXCEEDED, or UNAVAILABLE without an
                answer.
        """
        with trio.move_on_after(timeout_seconds):
            async with self._call(method, request, timeout_seconds) as replies:
                reply = await replies.message(method.reply)
                if reply is None:
                    raise RpcError(Status.UNKNOWN, "there is no reply")
                await replies.until_end()
                return reply
        raise RpcError(Status.DEADLINE_EXCEEDED, "no answer in time")

    @asynccontextmanager
    async def stream(
        self, method: StreamMethod[RequestT, ReplyT], request: RequestT
    ) -> AsyncIterator[Incoming[ReplyT]]:
        """Open a stream of replies; leaving resets it.

        Raises:
            RpcError: As for `unary`.
        """
        async with self._call(method, request, None) as replies:
            yield Incoming(method.reply, replies)

    @asynccontextmanager
    async def _call(
        self,
        method: UnaryMethod[Any, Any] | StreamMethod[Any, Any],
        request: Any,
        timeout_seconds: float | None,
    ) -> AsyncIterator[_Reply]:
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method.path),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", GRPC_CONTENT_TYPE),
        ]
        if timeout_seconds is not None:
            headers.append(("grpc-timeout", encode_timeout(timeout_seconds)))
        data = encode(request, method.request)
        try:
            connection = await self._connected()
            number = await connection.begin(headers)
        except (OSError, StreamEnded) as error:
            raise RpcError(Status.UNAVAILABLE, str(error)) from error
        reply = connection.replies[number]
        try:
            with reply.asking, suppress(StreamEnded):  # the reply says why
                await connection.http2.send_data(number, data, end=True)
                connection.http2.flush()
                reply.is_asked = True
            yield reply
        finally:
            connection.end(number)

    async def _connected(self) -> _Connection:
        """The connection; a new one in place of one that was lost."""
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                family = socket.AF_UNIX if isinstance(self._target, Path) else socket.AF_INET
                peer = socket.socket(family, socket.SOCK_STREAM)
                try:
                    address = str(self._target) if isinstance(self._target, Path) else self._target
                    await trio.socket.from_stdlib_socket(peer).connect(address)
                except BaseException:
                    peer.close()
                    raise
                self._connection = _Connection(peer)
                self._nursery.start_soon(self._connection.run)
            return self._connection


class Incoming(Generic[ReplyT]):
    """The replies of a stream; iterating ends when the server ends the stream with OK."""

    def __init__(self, message_type: type[ReplyT], replies: _Reply) -> None:
        self._message_type = message_type
        self._replies = replies

    def __aiter__(self) -> Incoming[ReplyT]:
        return self

    async def __anext__(self) -> ReplyT:
        """Wait for the next reply.

        Raises:
            RpcError: The stream ended with another status than OK, or broke.
        """
        reply = await self._replies.message(self._message_type)
        if reply is None:
            raise StopAsyncIteration
        return reply


@asynccontextmanager
async def open_channel(target: Path | tuple[str, int]) -> AsyncIterator[Channel]:
    """Open a channel to a unix socket or `(host, port)`, closed on leaving.

    Nothing is sent before the first call; the next call replaces a lost connection. An error raised
    inside leaves as it is, without an exception group.
    """
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield Channel(target, nursery)
        except Exception as error:  # noqa: BLE001 - raised again below
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised
