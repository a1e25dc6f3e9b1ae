"""A gRPC client: calls side by side over one connection, as the self-check and tests make them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Generic

import trio
from grpclib.const import Status
from grpclib.encoding.base import GRPC_CONTENT_TYPE
from grpclib.metadata import decode_grpc_message, encode_timeout
from h2.errors import ErrorCodes

from trio_npu_dra.kit.grpc.http2 import Call, Connection, StreamEnded
from trio_npu_dra.kit.grpc.messages import encode
from trio_npu_dra.kit.grpc.service import (
    Method,
    ReplyT,
    RequestT,
    RpcError,
    StreamMethod,
    UnaryMethod,
)

REPLY_BYTES: Final = 16 << 20
"""Limit of a reply, the one of the kubelet's own clients of its list of pods."""


class Incoming(Call, Generic[ReplyT]):
    """The replies of a call; iterating ends when the server ends the call with OK."""

    def __init__(self, connection: Connection, number: int, reply: type[ReplyT]) -> None:
        super().__init__(connection, number, REPLY_BYTES)
        self._reply = reply

    def __aiter__(self) -> Incoming[ReplyT]:
        return self

    async def __anext__(self) -> ReplyT:
        """Wait for the next reply.

        Raises:
            RpcError: The call ended with another status than OK, or broke.
        """
        reply = await self.message(self._reply)
        if reply is None:
            self._check()
            raise StopAsyncIteration
        return reply

    def _check(self) -> None:
        """Raise RpcError unless the call has ended with OK."""
        found = self.headers.get("grpc-status", "")
        if not found:
            http_status = self.headers.get(":status", "none")
            raise RpcError(Status.UNKNOWN, f"no gRPC status; the status of HTTP is {http_status}")
        try:
            status = Status(int(found))
        except ValueError:
            status = Status.UNKNOWN
        if status is not Status.OK:
            text = decode_grpc_message(self.headers.get("grpc-message", "no message"))
            raise RpcError(status, text)


class Channel:
    """Calls to one server, side by side over one connection; made by `open_channel`."""

    def __init__(self, path: Path, nursery: trio.Nursery) -> None:
        self._path = path
        self._nursery = nursery
        self._connection: Connection | None = None
        self._connecting = trio.Lock()

    async def unary(
        self,
        method: UnaryMethod[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_seconds: float,
    ) -> ReplyT:
        """Call *method* once; a cancelled call is reset, so that the server notices.

        Raises:
            RpcError: The status of the answer, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED for a reply
                of more than `REPLY_BYTES`, or UNAVAILABLE without an answer.
        """
        with trio.move_on_after(timeout_seconds):
            async with self._call(method, request, timeout_seconds) as incoming:
                replies = [reply async for reply in incoming]
                if len(replies) != 1:
                    text = f"{len(replies)} replies, where one belongs"
                    raise RpcError(Status.UNKNOWN, text)
                return replies[0]
        raise RpcError(Status.DEADLINE_EXCEEDED, "no answer in time")

    @asynccontextmanager
    async def stream(
        self, method: StreamMethod[RequestT, ReplyT], request: RequestT
    ) -> AsyncIterator[Incoming[ReplyT]]:
        """Open a stream of replies; leaving resets it.

        Raises:
            RpcError: As for `unary`.
        """
        async with self._call(method, request, None) as incoming:
            yield incoming

    @asynccontextmanager
    async def _call(
        self,
        method: Method[Any, ReplyT],
        request: Any,
        timeout_seconds: float | None,
    ) -> AsyncIterator[Incoming[ReplyT]]:
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
        except OSError as error:
            raise RpcError(Status.UNAVAILABLE, str(error)) from error
        number = connection.h2.get_next_available_stream_id()
        incoming = Incoming(connection, number, method.reply)
        try:
            with suppress(StreamEnded):  # the replies say why
                connection.send_headers(incoming, headers, end=False)
                await connection.send_data(incoming, data, end=True)
            yield incoming
        finally:
            incoming.close(ErrorCodes.CANCEL)

    async def _connected(self) -> Connection:
        """The connection, when it has room for one more call; a new one in place of a lost one.

        Raises:
            OSError: There is no server.
        """
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    await trio.socket.from_stdlib_socket(peer).connect(str(self._path))
                except BaseException:
                    peer.close()
                    raise
                self._connection = Connection(peer, is_client=True)
                self._nursery.start_soon(_keep_receiving, self._connection)
            connection = self._connection
        while connection.is_open and not connection.has_room:
            await connection.until_change()
        if not connection.is_open:
            raise ConnectionResetError("the connection was closed")
        return connection


async def _keep_receiving(connection: Connection) -> None:
    """Receive replies, until the server hangs up."""
    reason = "the connection was closed"
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.keep_sending)
            try:
                while events := await connection.receive():
                    for event in events:
                        connection.handle(event)
            except Exception as error:  # noqa: BLE001 - h2 raises many types for bad bytes
                reason = str(error) or repr(error)
            nursery.cancel_scope.cancel()
    finally:
        connection.close(reason=reason)


@asynccontextmanager
async def open_channel(path: Path) -> AsyncIterator[Channel]:
    """Open a channel to a unix socket, closed on leaving.

    Nothing is sent before the first call; the next call replaces a lost connection. An error raised
    inside leaves as it is, without an exception group.
    """
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield Channel(path, nursery)
        except Exception as error:  # noqa: BLE001 - raised again below
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised
