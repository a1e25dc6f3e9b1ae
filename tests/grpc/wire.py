"""A connection of our server without a socket: what it writes, and what it has not read yet."""

from __future__ import annotations

import asyncio
from typing import Any

from grpclib.const import Handler as Method
from grpclib.encoding.proto import ProtoCodec

from trio_npu_dra.kit.grpc.privates import DispatchServerEvents
from trio_npu_dra.kit.grpc.server_connections import Connections, ServerConnection
from trio_npu_dra.kit.grpc.server_link import Handler

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The beginning of an HTTP/2 client: the preface and an empty SETTINGS frame."""


class Wire(asyncio.Transport):
    """A transport that notes what is written, each write as one item."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = list[bytes]()
        self.closed = False

    def write(self, data: Any) -> None:
        """Note one write."""
        assert not self.closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        """Allow no more."""
        self.closed = True

    def abort(self) -> None:
        """Allow no more."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self.closed

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""

    def get_write_buffer_size(self) -> int:
        """All is sent."""
        return 0


def connection_on(
    wire: Wire, connections: Connections, methods: dict[str, Method]
) -> ServerConnection:
    """One connection of a server, to be made in asyncio."""
    handler = Handler(methods, ProtoCodec(), None, DispatchServerEvents())
    connection = ServerConnection(handler, connections)
    connection.connection_made(wire)
    return connection
