"""grpclib's Server, made to stop in order and to run its handlers in trio."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import trio_asyncio
import grpclib.const
import grpclib.server
import h2.exceptions
import trio
from betterproto2 import Message
from grpclib.const import Cardinality, Status
from grpclib.protocol import H2Protocol

from trio_npu_dra.rpc.service import Route, RpcError, UnaryRoute
from trio_npu_dra.rpc.sockets import Listener

log = logging.getLogger(__name__)

MessageT = TypeVar("MessageT", bound=Message)
_Stream: TypeAlias = "grpclib.server.Stream[Any, Any]"

MESSAGE_LIMIT = 4 << 20
"""Bytes of one request, gRPC's default in Go and so the kubelet's own limit."""

STATUS_TEXT_LIMIT = 1024
"""Characters of an error's text: it travels in an HTTP/2 header."""

CANCEL_SECONDS = 5.0
"""How long a stopping server waits for cancelled handlers to clean up."""


async def serve(
    loop: trio_asyncio.TrioEventLoop,
    listener: Listener,
    routes: Sequence[Route],
    *,
    started: Callable[[], None],
    grace_seconds: float = 0,
) -> None:
    """Answer calls on *listener*, which is closed at the end, until cancelled."""
    calls = _Calls(loop, routes)
    with trio.CancelScope(shield=True):  # brief, and asyncio would leave a half-started server
        server: _Server = await loop.run_aio_coroutine(_start(calls, listener))
    try:
        started()
        await trio.sleep_forever()
    finally:
        # Whoever connected may still call until the end; nobody new finds the way.
        listener.withdraw()
        with trio.CancelScope(shield=True):
            await _stop(loop, server, calls, grace_seconds)


async def _start(calls: _Calls, listener: Listener) -> _Server:
    server = _Server([calls])
    await server.start(sock=listener.socket)
    return server


async def _stop(
    loop: trio_asyncio.TrioEventLoop, server: _Server, calls: _Calls, grace_seconds: float
) -> None:
    # Not Server.wait_closed(): from Python 3.12 on it waits for the peers to hang up.
    with trio.move_on_after(grace_seconds):
        await calls.unary.none_left()
    server.close()
    with trio.move_on_after(CANCEL_SECONDS) as limit:
        await calls.unary.none_left()
        await calls.streams.none_left()
    if limit.cancelled_caught:
        log.warning("handlers still clean up %g s after they were cancelled", CANCEL_SECONDS)
    server.disconnect()
    await loop.synchronize()


class _Connection(H2Protocol):
    """A connection that its server can find again, to close it."""

    def __init__(self, plain: H2Protocol, opened: set[_Connection]) -> None:
        super().__init__(plain.handler, plain.config, plain.h2_config)
        self._opened = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", transport)
        self._opened.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._opened.discard(self)
        super().connection_lost(exc)


class _Server(grpclib.server.Server):
    """A grpclib server that knows its open connections."""

    def __init__(self, handlers: Sequence[_Calls]) -> None:
        super().__init__(handlers)
        self._mapping = _Methods(self._mapping)
        self._opened: set[_Connection] = set()

    def _protocol_factory(self) -> H2Protocol:
        return _Connection(super()._protocol_factory(), self._opened)

    def disconnect(self) -> None:
        """Close every connection; one whose peer does not read loses what is unsent."""
        for connection in tuple(self._opened):
            connection.processor.close("server stopped")
            if connection.transport.get_write_buffer_size():
                connection.transport.abort()


class _Methods(dict[str, grpclib.const.Handler]):
    """A method table whose lookup never fails.

    grpclib's own refusal of an unknown method lacks the content type, which the kubelet takes for a
    broken server and logs as an error.
    """

    def get(self, path: str, default: Any = None) -> Any:
        """The method's handler, or one that answers UNIMPLEMENTED."""
        return super().get(path, default or _UNKNOWN_METHOD)


async def _refuse(stream: _Stream) -> None:
    await stream.send_trailing_metadata(
        status=Status.UNIMPLEMENTED, status_message="unknown method"
    )


_UNKNOWN_METHOD = grpclib.const.Handler(_refuse, Cardinality.UNARY_STREAM, Message, Message)


class _InFlight:
    """How many calls of one kind run now."""

    def __init__(self) -> None:
        self._count = 0
        self._none = trio.Event()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()
                self._none = trio.Event()

    async def none_left(self) -> None:
        while self._count:
            await self._none.wait()


class _Calls:
    """The calls of one server: each is read here, in asyncio, and answered by trio."""

    def __init__(self, loop: trio_asyncio.TrioEventLoop, routes: Sequence[Route]) -> None:
        self._loop = loop
        self._routes = routes
        self.unary = _InFlight()
        self.streams = _InFlight()

    def __mapping__(self) -> Mapping[str, grpclib.const.Handler]:
        """The table that grpclib looks calls up in."""
        return {
            route.method.path: grpclib.const.Handler(
                partial(self._answer, route),
                Cardinality.UNARY_UNARY
                if isinstance(route, UnaryRoute)
                else Cardinality.UNARY_STREAM,
                route.method.request,
                route.method.reply,
            )
            for route in self._routes
        }

    async def _answer(self, route: Route, stream: _Stream) -> None:
        """Run one call to its trailers.

        A bug in a handler ends its own call and no other: the kubelet is told INTERNAL and comes
        back, while a daemon that died would take every pod's next call along.
        """
        kind = self.unary if isinstance(route, UnaryRoute) else self.streams
        with kind.one_more():
            try:
                await self._run(route, stream)
            except RpcError as error:
                status, text = error.status, error.message
            except Exception as error:
                log.exception("%s failed", route.method.path)
                status, text = Status.INTERNAL, f"bug in the driver: {error!r}"
            else:
                status, text = Status.OK, ""
            _check_wanted()
            await stream.send_trailing_metadata(
                status=status, status_message=text[:STATUS_TEXT_LIMIT] or None
            )

    async def _run(self, route: Route, stream: _Stream) -> None:
        request = await _receive(stream, route.method.request)
        seconds = stream.deadline.time_remaining() if stream.deadline else None
        if isinstance(route, UnaryRoute):
            reply = await self._loop.trio_as_future(_in_time, seconds, route.handler, request)
            _check_wanted()
            await stream.send_message(reply)
        else:
            send = partial(self._send, stream)
            await self._loop.trio_as_future(_in_time, seconds, route.handler, request, send)

    async def _send(self, stream: _Stream, message: Message) -> None:
        try:
            await self._loop.run_aio_coroutine(stream.send_message(message))
        except h2.exceptions.ProtocolError:
            # The peer has reset the stream; the cancellation of this call is on its way.
            await trio.sleep_forever()


async def _receive(stream: _Stream, message_type: type[MessageT]) -> MessageT:
    """Read the request, not by grpclib, which reads any size and calls bad input a bug of ours."""
    source = stream._stream  # noqa: SLF001 - the only way to see the length before the body
    try:
        prefix = await source.recv_data(5)
        if not prefix:
            raise RpcError(Status.INTERNAL, "the request has no message")
        compressed, size = struct.unpack(">?I", prefix)
        if compressed:
            raise RpcError(Status.UNIMPLEMENTED, "compressed messages are not supported")
        if size > MESSAGE_LIMIT:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED, f"request of {size} bytes, the limit is {MESSAGE_LIMIT}"
            )
        body = await source.recv_data(size)
    except AssertionError as error:  # what grpclib raises when the stream ends too early
        raise RpcError(Status.INTERNAL, "the request ends within a message") from error
    try:
        return message_type.parse(body)
    except Exception as error:  # boundary: betterproto2 raises half a dozen types for bad bytes
        raise RpcError(Status.INTERNAL, f"the request does not parse: {error!r}") from error


def _check_wanted() -> None:
    """End a call that was cancelled while a shielded part of its handler ran to its end."""
    task = asyncio.current_task()
    assert task is not None
    if task.cancelling():
        raise asyncio.CancelledError


async def _in_time(seconds: float | None, handler: Any, *args: Any) -> Any:
    """Run a handler, in trio, under the call's deadline, so that it can see and use it."""
    if seconds is None:
        return await handler(*args)
    with trio.move_on_after(seconds):
        return await handler(*args)
    # grpclib has a timer for the same moment, which cancels this task and tells the peer.
    return await trio.sleep_forever()
