"""grpclib's Channel for trio, with which the self-check and tests call sockets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, Generic

import grpclib.client
import h2.exceptions
import trio
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from trio_npu_dra.kit.grpc.known_fields import read_known
from trio_npu_dra.kit.grpc.loop import Loop
from trio_npu_dra.kit.grpc.privates import CLOSED_CONNECTION, reply_of
from trio_npu_dra.kit.grpc.service import ReplyT, RequestT, RpcError, StreamMethod, UnaryMethod

_HEAD: Final = struct.Struct(">?I")
"""Before each message: whether it is compressed, which we never ask for, and its length."""


class Channel:
    """Calls to one server, side by side over one connection; made by `Bridge.dial`."""

    def __init__(self, loop: Loop, channel: grpclib.client.Channel) -> None:
        self._loop = loop
        self._channel = channel

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
        stub: grpclib.client.UnaryUnaryMethod[RequestT, ReplyT] = grpclib.client.UnaryUnaryMethod(
            self._channel, method.path, method.request, method.reply
        )

        async def call() -> ReplyT:
            async with stub.open(timeout=timeout_seconds) as stream:
                await stream.send_message(request, end=True)
                return await _received(stream, method.reply)

        with _translated():
            reply: ReplyT = await self._loop.in_asyncio(call())
        return reply

    @asynccontextmanager
    async def stream(
        self, method: StreamMethod[RequestT, ReplyT], request: RequestT
    ) -> AsyncIterator[Incoming[ReplyT]]:
        """Open a stream of replies; leaving resets it.

        Raises:
            RpcError: As for `unary`.
        """
        call: grpclib.client.Stream[RequestT, ReplyT] = self._channel.request(
            method.path, Cardinality.UNARY_STREAM, method.request, method.reply
        )
        await self._loop.in_asyncio(call.__aenter__())
        try:
            with _translated():
                await self._loop.in_asyncio(call.send_message(request, end=True))
            yield Incoming(self._loop, call)
        finally:
            # An exception makes grpclib reset the stream on leaving, without waiting for its end.
            leaving = asyncio.CancelledError()
            with trio.CancelScope(shield=True):
                await self._loop.in_asyncio(call.__aexit__(type(leaving), leaving, None))


class Incoming(Generic[ReplyT]):
    """The replies of a stream; iterating ends when the server ends the stream with OK."""

    def __init__(self, loop: Loop, call: grpclib.client.Stream[Any, ReplyT]) -> None:
        self._loop = loop
        self._call = call

    def __aiter__(self) -> Incoming[ReplyT]:
        return self

    async def __anext__(self) -> ReplyT:
        """Wait for the next reply.

        Raises:
            RpcError: The stream ended with another status than OK, or broke.
        """
        with _translated():
            reply: ReplyT | None = await self._loop.in_asyncio(self._call.recv_message())
            if reply is None:
                await self._loop.in_asyncio(self._call.recv_trailing_metadata())
        if reply is None:
            raise StopAsyncIteration
        return reply


@asynccontextmanager
async def open_channel(loop: Loop, target: Path | tuple[str, int]) -> AsyncIterator[Channel]:
    """Make a channel that connects with its first call, and close it on leaving."""
    channel: grpclib.client.Channel = await loop.in_asyncio(_make(target))
    try:
        yield Channel(loop, channel)
    finally:
        channel.close()


async def _make(target: Path | tuple[str, int]) -> grpclib.client.Channel:
    # In a coroutine because grpclib looks for the running loop.
    if isinstance(target, Path):
        return grpclib.client.Channel(path=str(target))
    return grpclib.client.Channel(*target)


async def _received(
    call: grpclib.client.Stream[RequestT, ReplyT], message_type: type[ReplyT]
) -> ReplyT:
    """The reply of a call."""
    await call.recv_initial_metadata()
    stream, wrapper = reply_of(call)
    with wrapper:
        head = await stream.recv_data(_HEAD.size)
        if not head:
            await call.recv_trailing_metadata()  # raises what kept the server from answering
            raise GRPCError(Status.UNKNOWN, "there is no reply")
        _, size = _HEAD.unpack(head)
        return await read_known(stream.recv_data, size, message_type)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except GRPCError as error:
        raise RpcError(error.status, error.message or "no message") from error
    except TimeoutError as error:
        raise RpcError(Status.DEADLINE_EXCEEDED, "no answer in time") from error
    except (OSError, StreamTerminatedError, h2.exceptions.ProtocolError) as error:
        raise RpcError(Status.UNAVAILABLE, str(error)) from error
    except AttributeError as error:
        if error.name != CLOSED_CONNECTION:
            raise
        # grpclib takes the transport off a connection that the server closed immediately.
        raise RpcError(Status.UNAVAILABLE, "the connection was closed") from error
