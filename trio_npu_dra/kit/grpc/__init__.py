"""gRPC for trio: grpclib's server and client behind functions that know only trio.

It knows no service and no device. Only this room has an asyncio loop: a call enters trio as soon as
its request is whole, and below its handler all is trio.
Whatever ends the call early (deadline, RST_STREAM, a lost connection, a stopping server) arrives in
the handler as `trio.Cancelled`. Others also import the generated messages, and the tables of calls
in `methods` and `device_plugin_methods`.
"""

from __future__ import annotations

from grpclib.const import Status

from trio_npu_dra.kit.grpc.bridge import Bridge, open_bridge
from trio_npu_dra.kit.grpc.client import Channel, Incoming
from trio_npu_dra.kit.grpc.limits import DEFAULT_LIMITS, Limits
from trio_npu_dra.kit.grpc.service import (
    Route,
    RpcError,
    Send,
    StreamMethod,
    StreamRoute,
    UnaryMethod,
    UnaryRoute,
)
from trio_npu_dra.kit.grpc.sockets import (
    Listener,
    is_refused,
    is_socket,
    is_too_long,
    listen_tcp,
    listen_unix,
)

__all__ = [
    "DEFAULT_LIMITS",
    "Bridge",
    "Channel",
    "Incoming",
    "Limits",
    "Listener",
    "Route",
    "RpcError",
    "Send",
    "Status",
    "StreamMethod",
    "StreamRoute",
    "UnaryMethod",
    "UnaryRoute",
    "_generated",
    "device_plugin_methods",
    "is_refused",
    "is_socket",
    "is_too_long",
    "listen_tcp",
    "listen_unix",
    "methods",
    "open_bridge",
]
