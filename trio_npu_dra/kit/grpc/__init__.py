"""gRPC for trio: grpclib services, served over HTTP/2 by h2, and a client of the same methods.

It knows no service and no device. A connection is a task and so is a call: whatever ends a call
early (its deadline, RST_STREAM, a lost connection, a server that stops) is `trio.Cancelled` in its
handler. Others also import the generated messages and `methods`.
"""

from __future__ import annotations

from grpclib.const import Status

from trio_npu_dra.kit.grpc.client import Channel, open_channel
from trio_npu_dra.kit.grpc.server import serve
from trio_npu_dra.kit.grpc.service import (
    Route,
    RpcError,
    Send,
    Service,
    StreamMethod,
    UnaryMethod,
)
from trio_npu_dra.kit.grpc.sockets import (
    is_refused,
    is_socket,
    is_too_long,
    listen_tcp,
    listen_unix,
)

__all__ = [
    "Channel",
    "Route",
    "RpcError",
    "Send",
    "Service",
    "Status",
    "StreamMethod",
    "UnaryMethod",
    "_generated",
    "is_refused",
    "is_socket",
    "is_too_long",
    "listen_tcp",
    "listen_unix",
    "methods",
    "open_channel",
    "serve",
]
