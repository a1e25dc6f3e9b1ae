"""Reads requests: each has a deadline, and all half-sent ones share a bounded memory."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio
from betterproto2 import Message
from grpclib.const import Status

from trio_npu_dra.kit.grpc.limits import Limits
from trio_npu_dra.kit.grpc.loop import Loop
from trio_npu_dra.kit.grpc.messages import parse
from trio_npu_dra.kit.grpc.server_link import ServerStream
from trio_npu_dra.kit.grpc.service import RpcError

MessageT = TypeVar("MessageT", bound=Message)

PIECE_BYTES = 16 << 10
"""How much of a request is read before it is counted."""

INLINE_BYTES = 512
"""Requests up to this size, three claims or more, are parsed on the loop: 5 ms at worst."""


class _HalfSent:
    """A request that is being read.

    Attributes:
        stream: Where it comes from.
        since: When it began.
        size: Bytes that it counts for.
        refusal: Why it was refused: a status and the text for the peer; None while it is not. (An
            exception here would form a cycle with its traceback and keep alive what was read.)
        parsing: Around the wait for the thread that parses.
    """

    def __init__(self, stream: ServerStream, size: int) -> None:
        self.stream = stream
        self.since = trio.current_time()
        self.size = size
        self.refusal: tuple[Status, str] | None = None
        self.parsing = trio.CancelScope()

    def refuse(self, status: Status, message: str) -> None:
        """End the request: reading ends as if its peer had ended it, or its wait for a thread."""
        if self.refusal is None:
            self.refusal = (status, message)
            self.stream.buffer.eof()
            self.parsing.cancel()


class Requests:
    """The requests of one server that are being read.

    Args:
        loop: Through it, large requests leave asyncio to be parsed in a thread.
        limits: Those of the server.
    """

    def __init__(self, loop: Loop, limits: Limits) -> None:
        self._loop = loop
        self._limits = limits
        self._half_sent: dict[_HalfSent, None] = {}  # the oldest first
        self._size = 0
        self._parsing = trio.CapacityLimiter(1)

    async def receive(self, stream: ServerStream, message_type: type[MessageT]) -> MessageT:
        """Read the one message of a call.

        Raises:
            RpcError: It does not parse, is too large, was late or was dropped to make room.
        """
        with self._half_sent_by(stream) as request:
            try:
                body = await self._read(request)
            except AssertionError as error:  # what grpclib raises when the stream ends too early
                refusal = request.refusal or (Status.INTERNAL, "the request ends within a message")
                raise RpcError(*refusal) from error
            if len(body) <= INLINE_BYTES:
                return parse(message_type, body)
            return await self._loop.in_trio(self._parse_apart, request, message_type, body)

    def refuse_late(self, now: float) -> None:
        """Refuse the requests that have taken too long."""
        seconds = self._limits.request_seconds
        for request in self._half_sent:
            if now - request.since < seconds:
                break
            request.refuse(
                Status.DEADLINE_EXCEEDED, f"the request was not whole after {seconds:g} s"
            )

    async def _parse_apart(
        self, request: _HalfSent, message_type: type[MessageT], body: bytes
    ) -> MessageT:
        """Parse in a thread: it takes longer, but does not block the loop."""
        with request.parsing:
            return await trio.to_thread.run_sync(parse, message_type, body, limiter=self._parsing)
        assert request.refusal is not None
        raise RpcError(*request.refusal)

    @contextmanager
    def _half_sent_by(self, stream: ServerStream) -> Iterator[_HalfSent]:
        request = _HalfSent(stream, 0)
        self._half_sent[request] = None
        try:
            self._count(request, self._limits.half_sent_cost)
            yield request
        finally:
            del self._half_sent[request]
            self._size -= request.size

    async def _read(self, request: _HalfSent) -> bytes:
        source = request.stream
        prefix = await source.recv_data(5)
        if not prefix:
            raise RpcError(*(request.refusal or (Status.INTERNAL, "the request has no message")))
        compressed, size = struct.unpack(">?I", prefix)
        if compressed:
            raise RpcError(Status.UNIMPLEMENTED, "compressed messages are not supported")
        limit = self._limits.message_bytes
        if size > limit:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED, f"request of {size} bytes, the limit is {limit}"
            )
        body = bytearray()
        while len(body) < size:
            piece = await source.recv_data(min(PIECE_BYTES, size - len(body)))
            assert piece, "the stream has ended"
            body += piece
            self._count(request, len(piece))
        return bytes(body)

    def _count(self, request: _HalfSent, size: int) -> None:
        request.size += size
        self._size += size
        if self._size > self._limits.half_sent_bytes:
            self._give_one_up()

    def _give_one_up(self) -> None:
        """Refuse the largest of the connection that has most: other peers keep theirs."""
        waiting = [request for request in self._half_sent if request.refusal is None]
        sizes = Counter[object]()
        for request in waiting:
            sizes[request.stream.connection] += request.size
        if waiting:
            largest = max(
                waiting, key=lambda request: (sizes[request.stream.connection], request.size)
            )
            largest.refuse(Status.RESOURCE_EXHAUSTED, "too many requests are half sent")
            self._size -= largest.size
            largest.size = 0
