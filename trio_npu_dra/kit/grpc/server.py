"""A gRPC server: grpclib's calls over connections of ours, answered in trio, stopped in order."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import grpclib.const
import h2.exceptions
import trio
from betterproto2 import Message
from grpclib.const import Cardinality, Status
from grpclib.encoding.proto import ProtoCodec

from trio_npu_dra.kit.grpc.limits import Limits
from trio_npu_dra.kit.grpc.loop import Loop
from trio_npu_dra.kit.grpc.privates import DispatchServerEvents, GrpcStream
from trio_npu_dra.kit.grpc.requests import Requests
from trio_npu_dra.kit.grpc.server_connections import Connections, ServerConnection
from trio_npu_dra.kit.grpc.server_link import Handler, ServerStream, stream_of
from trio_npu_dra.kit.grpc.service import Route, RpcError, StreamRoute
from trio_npu_dra.kit.grpc.sockets import Listener

log = logging.getLogger(__name__)

STATUS_TEXT_LIMIT = 1024
"""Characters of an error's text: it travels in an HTTP/2 header."""

CANCEL_SECONDS = 5.0
"""How long a stopping server waits for cancelled handlers to clean up."""

ACCEPT_PAUSE_SECONDS = 1.0
"""Pause before accepting again when the process or the system has no room for a connection."""

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


async def serve(
    loop: Loop,
    listener: Listener,
    routes: Sequence[Route],
    *,
    started: Callable[[], None],
    limits: Limits,
    grace_seconds: float = 0,
) -> None:
    """Answer calls on *listener*, which is closed at the end, until cancelled."""
    connections, requests = Connections(limits), Requests(loop, limits)
    calls = _Calls(loop, routes, requests)
    until_stopped, stopped = trio.CancelScope(shield=True), trio.Event()

    async def keep_serving() -> None:
        try:
            with until_stopped:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_accept, loop, listener, connections, calls)
                    nursery.start_soon(
                        _check_periodically,
                        limits.look_seconds,
                        connections.close_overdue,
                        requests.refuse_late,
                    )
        finally:
            stopped.set()

    with listener.socket:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_serving)
            try:
                started()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    # Connected peers may call until the end; new ones cannot connect.
                    listener.withdraw()
                    with trio.move_on_after(grace_seconds):
                        await calls.unary.none_left()
                    until_stopped.cancel()
                    await stopped.wait()  # a connection that was being accepted is known by now
                    await _end(loop, connections, calls)


async def _accept(loop: Loop, listener: Listener, connections: Connections, calls: _Calls) -> None:
    """Accept connections, one by one, each when there is a place for it."""
    mapping = _Methods(calls.__mapping__())
    codec, events = ProtoCodec(), DispatchServerEvents()

    def connection() -> ServerConnection:
        return ServerConnection(Handler(mapping, codec, None, events), connections)

    while True:
        await trio.lowlevel.wait_readable(listener.socket)
        await connections.place()
        try:
            accepted, _ = listener.socket.accept()
            with trio.CancelScope(shield=True):  # asyncio closes no socket that it has not begun
                await loop.in_asyncio(loop.asyncio.connect_accepted_socket(connection, accepted))
        except OSError as error:
            if error.errno in _NO_ROOM:
                log.warning("cannot accept gRPC connections", extra={"error": error.strerror})
                await trio.sleep(ACCEPT_PAUSE_SECONDS)
            # else its peer has already gone


async def _check_periodically(seconds: float, *checks: Callable[[float], None]) -> None:
    while True:
        await trio.sleep(seconds)
        for check in checks:
            check(trio.current_time())


async def _end(loop: Loop, connections: Connections, calls: _Calls) -> None:
    """Cancel all calls, give them time to clean up and close the connections."""
    connections.cancel_calls()
    with trio.move_on_after(CANCEL_SECONDS) as limit:
        await calls.unary.none_left()
        await calls.streams.none_left()
    if limit.cancelled_caught:
        log.warning("cancelled handlers still clean up", extra={"after_seconds": CANCEL_SECONDS})
    connections.close()
    await loop.synchronize()


class _Methods(dict[str, grpclib.const.Handler]):
    """A method table whose lookup never fails.

    grpclib's own refusal of an unknown method lacks the content type; the kubelet then takes the
    server for broken and logs an error.
    """

    def get(self, path: str, default: Any = None) -> Any:
        """The method's handler, or one that answers UNIMPLEMENTED."""
        return super().get(path, default or _UNKNOWN_METHOD)


async def _refuse(stream: GrpcStream) -> None:
    await stream.send_trailing_metadata(
        status=Status.UNIMPLEMENTED, status_message="unknown method"
    )


_UNKNOWN_METHOD = grpclib.const.Handler(_refuse, Cardinality.UNARY_STREAM, Message, Message)


class _InFlight:
    """How many calls of one kind run now: one more for each `with` that is inside."""

    def __init__(self) -> None:
        self._count = 0
        self._none = trio.Event()

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()
            self._none = trio.Event()

    async def none_left(self) -> None:
        while self._count:
            await self._none.wait()


class _Calls:
    """The calls of one server: each is read here, in asyncio, and answered by trio."""

    def __init__(self, loop: Loop, routes: Sequence[Route], requests: Requests) -> None:
        self._loop = loop
        self._routes = routes
        self._requests = requests
        self.unary = _InFlight()
        self.streams = _InFlight()

    def __mapping__(self) -> Mapping[str, grpclib.const.Handler]:
        """The table that grpclib looks calls up in."""
        return {
            route.method.path: grpclib.const.Handler(
                partial(self._answer, route),
                Cardinality.UNARY_STREAM
                if isinstance(route, StreamRoute)
                else Cardinality.UNARY_UNARY,
                route.method.request,
                route.method.reply,
            )
            for route in self._routes
        }

    async def _answer(self, route: Route, call: GrpcStream) -> None:
        """Run one call to its trailers; it counts as in flight once its request is whole."""
        stream = stream_of(call)
        try:
            request = await self._requests.receive(stream, route.method.request)
        except RpcError as error:
            await _end_call(call, error.status, error.message)
            return
        kind = self.streams if isinstance(route, StreamRoute) else self.unary
        with kind:
            status, text = await self._outcome(route, call, stream, request)
            _check_wanted()
            await _end_call(call, status, text)

    async def _outcome(
        self, route: Route, call: GrpcStream, stream: ServerStream, request: Message
    ) -> tuple[Status, str]:
        """Run the handler and send its replies.

        A bug in a handler ends only its own call: the kubelet gets INTERNAL and retries. If the
        daemon died instead, every pod's next call would fail.
        """
        try:
            with stream.connection.answering(watch=isinstance(route, StreamRoute)):
                await self._run(route, call, stream, request)
        except RpcError as error:
            return error.status, error.message
        except Exception as error:
            log.exception("a gRPC handler failed", extra={"method": route.method.path})
            return Status.INTERNAL, f"bug in the driver: {error!r}"
        return Status.OK, ""

    async def _run(
        self, route: Route, call: GrpcStream, stream: ServerStream, request: Message
    ) -> None:
        handle = partial(self._loop.in_trio, _in_time, stream.deadline, route.handler)
        if isinstance(route, StreamRoute):
            await handle(request, partial(self._send, call))
            return
        reply = await handle(request)
        _check_wanted()
        with stream.connection.replying():
            await call.send_message(reply)

    async def _send(self, call: GrpcStream, message: Message) -> None:
        connection = stream_of(call).connection
        try:
            with connection.replying():
                await self._loop.in_asyncio(call.send_message(message))
            connection.budget.replied()
        except h2.exceptions.ProtocolError:
            # The peer has reset the stream; the cancellation of this call is on its way.
            await trio.sleep_forever()


async def _end_call(call: GrpcStream, status: Status, text: str) -> None:
    connection = stream_of(call).connection
    with connection.replying():
        await call.send_trailing_metadata(
            status=status, status_message=text[:STATUS_TEXT_LIMIT] or None
        )
    connection.budget.replied()


def _check_wanted() -> None:
    """End a call that was cancelled while a shielded part of its handler ran to its end."""
    task = asyncio.current_task()
    assert task is not None
    if task.cancelling():
        raise asyncio.CancelledError


async def _in_time(deadline: float, handler: Any, *args: Any) -> Any:
    """Run a handler, in trio, under the call's deadline, so that the handler can read it.

    Raises:
        RpcError: The deadline has passed, even if a shielded part of the handler ran to its end.
    """
    with trio.CancelScope(deadline=deadline):
        reply = await handler(*args)
        if trio.current_time() < deadline:
            return reply
    raise RpcError(Status.DEADLINE_EXCEEDED, "the deadline of the call has passed")
