"""A gRPC server: connections in a nursery, a task for each call, stopped in order."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import trio
from grpclib.const import Handler, Status
from grpclib.exceptions import GRPCError

from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.grpc.connections import Answer, Connections, PeerConnection
from trio_npu_dra.kit.grpc.http2 import StreamEnded
from trio_npu_dra.kit.grpc.limits import DEFAULT_LIMITS, Limits
from trio_npu_dra.kit.grpc.requests import Requests
from trio_npu_dra.kit.grpc.service import RpcError, Service
from trio_npu_dra.kit.grpc.sockets import Listener
from trio_npu_dra.kit.grpc.stream import Stream

log = logging.getLogger(__name__)

CANCEL_SECONDS = 5.0
"""How long a stopping server waits for cancelled handlers before it says so in the log."""

ACCEPT_PAUSE_SECONDS = 1.0
"""Pause before accepting again when the process or the system has no room for a connection."""

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


async def serve(
    listener: Listener,
    services: Sequence[Service],
    *,
    grace_seconds: float = 0,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Answer calls until cancelled.

    When cancelled, it removes the listener's file, gives the unary calls in flight *grace_seconds*
    to finish, cancels the others, waits for them and closes all connections.

    Args:
        listener: Where peers connect; it is closed at the end.
        services: Their methods are answered; all others are UNIMPLEMENTED.
        grace_seconds: How long a stop may wait for calls in flight.
        limits: What peers may use.
    """
    connections = Connections(limits)
    calls = _Calls(services, Requests(limits))
    until_stopped = trio.CancelScope(shield=True)

    async def keep_serving() -> None:
        with until_stopped:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_accept, listener, connections, calls.answer, nursery)
                while True:
                    await trio.sleep(limits.look_seconds)
                    connections.close_overdue(trio.current_time())
                    calls.requests.refuse_late(trio.current_time())

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
                        await calls.unary.none_left()
                    connections.cancel_calls()
                    with trio.move_on_after(CANCEL_SECONDS) as limit:
                        await calls.unary.none_left()
                        await calls.streams.none_left()
                    if limit.cancelled_caught:
                        log.warning(
                            "cancelled handlers still clean up",
                            extra={"after_seconds": CANCEL_SECONDS},
                        )
                    connections.close()
                    until_stopped.cancel()


async def _accept(
    listener: Listener,
    connections: Connections,
    answer: Answer,
    nursery: trio.Nursery,
) -> None:
    """Accept connections, one by one, each when there is a place for it."""
    while True:
        await trio.lowlevel.wait_readable(listener.socket)
        await connections.place()
        try:
            accepted, address = listener.socket.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:
                log.warning("cannot accept gRPC connections", extra={"error": error.strerror})
                await trio.sleep(ACCEPT_PAUSE_SECONDS)
            continue  # its peer may have gone
        accepted.setblocking(False)
        connection = PeerConnection(accepted, address, connections, answer)
        connections.add(connection)
        nursery.start_soon(connection.run)


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
    """The calls of one server."""

    def __init__(self, services: Sequence[Service], requests: Requests) -> None:
        self.requests = requests
        self.unary = _InFlight()
        self.streams = _InFlight()
        self._handlers = {
            path: handler for service in services for path, handler in service.__mapping__().items()
        }

    async def answer(self, peer: PeerConnection, call: Stream[Any, Any]) -> None:
        """Run one call to its trailers."""
        handler = self._handlers.get(call.path)
        with suppress(StreamEnded):  # its peer has ended it
            if flaw := call.flaw():
                await call.refuse(*flaw)
            elif handler is None:
                await call.end(Status.UNIMPLEMENTED, "unknown method")
            else:
                try:
                    await self._run(peer, call, handler)
                except GRPCError as error:
                    await call.end(error.status, error.message or "")

    async def _run(self, peer: PeerConnection, call: Stream[Any, Any], handler: Handler) -> None:
        """Run a call; it counts as in flight once its request is whole.

        Raises:
            GRPCError: It was refused, or its handler chose this end.
        """
        cardinality = handler.cardinality
        call.begin(handler, self.requests.receive)
        with call.scope:
            if not cardinality.client_streaming:
                await call.receive_request()
            await trio.lowlevel.checkpoint_if_cancelled()  # the peer may have reset it meanwhile
            with (
                self.streams if cardinality.server_streaming else self.unary,
                peer.answering(watch=cardinality.server_streaming),
            ):
                await self._handle(call, handler)
        if call.is_late:
            raise RpcError(Status.DEADLINE_EXCEEDED, "the deadline of the call has passed")

    async def _handle(self, call: Stream[Any, Any], handler: Handler) -> None:
        """Let the handler answer.

        A bug in it ends only its own call: the kubelet gets INTERNAL and retries. If the daemon
        died instead, every pod's next call would fail.
        """
        try:
            await handler.func(call)
        except (GRPCError, StreamEnded):
            raise
        except Exception as error:
            log.exception("a gRPC handler failed", extra={"method": call.path})
            raise RpcError(Status.INTERNAL, f"bug in the driver: {error!r}") from error
        # A shielded part of it may have run to its end after the call was cancelled, or late.
        await trio.lowlevel.checkpoint_if_cancelled()
        if call.is_late:
            return
        if call.lacks_reply:
            log.error("a gRPC handler sent no reply", extra={"method": call.path})
            raise RpcError(Status.INTERNAL, "bug in the driver: no reply")
        await call.end(Status.OK, "")
