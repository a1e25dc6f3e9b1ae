"""A peer that sends a test's bytes, as no client library does."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import h2.config
import h2.connection
import h2.events
import trio
from betterproto2 import Message
from h2.errors import ErrorCodes

from dev.grpc.serving import ECHO, HELLO
from trio_npu_dra.kit.grpc import Status

EventT = TypeVar("EventT", bound=h2.events.Event)


def on_the_wire(request: Message) -> bytes:
    """A request, with its head."""
    return struct.pack(">?I", False, len(bytes(request))) + bytes(request)


MESSAGE = on_the_wire(HELLO)


class Peer:
    """One connection, made by `connected`; methods begin something, `flush` sends it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration())
        self.h2.initiate_connection()
        self._events = deque[h2.events.Event]()

    def call(
        self,
        path: str = ECHO.path,
        data: bytes = MESSAGE,
        *,
        end: bool = True,
        grpc_timeout: str = "",
    ) -> int:
        """Begin a call with *data* of its request; returns the number of its stream."""
        number = self.h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        if grpc_timeout:
            headers.append(("grpc-timeout", grpc_timeout))
        self.h2.send_headers(number, headers)
        if data or end:
            self.h2.send_data(number, data, end_stream=end)
        return number

    async def flush(self) -> None:
        """Send what was begun; does not fail if the server has cut the connection."""
        with suppress(trio.BrokenResourceError):
            await self.stream.send_all(self.h2.data_to_send())

    async def until(self, kind: type[EventT]) -> EventT:
        """Flush and read until an event of a kind comes."""
        while event := await self._next():
            if isinstance(event, kind):
                return event
        raise AssertionError(f"the server hung up without {kind.__name__}")

    async def status(self) -> Status:
        """Flush and read until a call has ended."""
        while event := await self._next():
            if isinstance(event, h2.events.TrailersReceived | h2.events.ResponseReceived):
                code = dict(event.headers or []).get(b"grpc-status")
                if code is not None:
                    return Status(int(code))
        raise AssertionError("the server hung up without a status")

    async def end(self) -> ErrorCodes | int | None:
        """Flush and read until the server hangs up; returns its reason."""
        code = None
        while event := await self._next():
            if isinstance(event, h2.events.ConnectionTerminated):
                code = event.error_code
        return code

    async def _next(self) -> h2.events.Event | None:
        """The next event; None if the server has hung up."""
        await self.flush()
        while not self._events:
            try:
                data = await self.stream.receive_some()
            except trio.BrokenResourceError:  # cut off, with unread bytes of ours
                return None
            if not data:
                return None
            self._events.extend(self.h2.receive_data(data))
            await self.flush()
        return self._events.popleft()


@asynccontextmanager
async def connected(to: Path | int) -> AsyncIterator[Peer]:
    """A peer of a unix socket or of a port of this machine; it has sent nothing yet."""
    if isinstance(to, Path):
        stream = await trio.open_unix_socket(str(to))
    else:
        stream = await trio.open_tcp_stream("127.0.0.1", to)
    async with stream:
        yield Peer(stream)
