"""Reads requests: each has a deadline, and all half-sent ones share a bounded memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import trio
from grpclib.const import Status

from trio_npu_dra.kit.grpc.limits import Limits
from trio_npu_dra.kit.grpc.messages import PREFIX, decode
from trio_npu_dra.kit.grpc.service import RpcError
from trio_npu_dra.kit.grpc.stream import Stream

PIECE_BYTES = 16 << 10
"""How much of a request is read before it is counted."""

INLINE_BYTES = 512
"""Requests up to this size, three claims or more, are parsed at once: 5 ms at worst."""


class _HalfSent:
    """A request that is being read.

    Attributes:
        stream: Its call.
        since: When it began.
        size: Bytes that it counts for.
        refusal: Why it was refused: a status and the text for the peer; None while it is not. (An
            exception here would form a cycle with its traceback and keep alive what was read.)
        parsing: Around the wait for the thread that parses.
    """

    def __init__(self, stream: Stream[Any, Any]) -> None:
        self.stream = stream
        self.since = trio.current_time()
        self.size = 0
        self.refusal: tuple[Status, str] | None = None
        self.parsing = trio.CancelScope()

    def refuse(self, status: Status, message: str) -> None:
        """End the request: reading ends as if its peer had ended it, or its wait for a thread."""
        if self.refusal is None:
            self.refusal = (status, message)
            self.stream.inbound.close()
            self.parsing.cancel()


class Requests:
    """The requests of one server that are being read.

    Args:
        limits: Those of the server.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._half_sent: dict[_HalfSent, None] = {}  # the oldest first
        self._size = 0
        self._parsing = trio.CapacityLimiter(1)

    async def receive(self, stream: Stream[Any, Any]) -> Any:
        """Read the next message of a call.

        Raises:
            RpcError: It does not parse, is too large, was late or was dropped to make room.
        """
        request = _HalfSent(stream)
        self._half_sent[request] = None
        try:
            self._count(request, self._limits.half_sent_cost)
            return await self._parse(request, await self._read(request))
        except ValueError as error:
            flaw = request.refusal or (Status.INTERNAL, str(error))
            raise RpcError(*flaw) from error
        finally:
            del self._half_sent[request]
            self._size -= request.size

    def refuse_late(self, now: float) -> None:
        """Refuse the requests that have taken too long."""
        seconds = self._limits.request_seconds
        for request in self._half_sent:
            if now - request.since < seconds:
                break
            request.refuse(
                Status.DEADLINE_EXCEEDED, f"the request was not whole after {seconds:g} s"
            )

    async def _parse(self, request: _HalfSent, body: bytes) -> Any:
        """Make a message of a body; raises ValueError if it is none."""
        message_type = request.stream.handler.request_type
        try:
            if len(body) <= INLINE_BYTES:
                return decode(body, message_type)
            with request.parsing:  # in a thread it takes longer, but does not block the loop
                return await trio.to_thread.run_sync(
                    decode, body, message_type, limiter=self._parsing
                )
        except Exception as error:  # boundary: there are many types for bad bytes
            raise ValueError(f"the request does not parse: {error}") from error
        raise ValueError("it was refused")

    async def _read(self, request: _HalfSent) -> bytes:
        """The body of the next message; raises ValueError if it does not come."""
        inbound = request.stream.inbound
        prefix = await inbound.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            raise ValueError(
                "the request ends within its message" if prefix else "the request has no message"
            )
        compressed, size = PREFIX.unpack(prefix)
        if compressed:
            raise RpcError(Status.UNIMPLEMENTED, "compressed messages are not supported")
        limit = self._limits.message_bytes
        if size > limit:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED, f"request of {size} bytes, the limit is {limit}"
            )
        body = bytearray()
        while len(body) < size:
            piece = await inbound.read(min(PIECE_BYTES, size - len(body)))
            if not piece:
                raise ValueError("the request ends within its message")
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
            sizes[request.stream.peer] += request.size
        if waiting:
            largest = max(waiting, key=lambda request: (sizes[request.stream.peer], request.size))
            largest.refuse(Status.RESOURCE_EXHAUSTED, "too many requests are half sent")
            self._size -= largest.size
            largest.size = 0
