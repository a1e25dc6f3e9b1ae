"""Connections of a server that are busy at the same time."""

from __future__ import annotations

import asyncio

from tests.grpc.wire import GREETING, Wire, connection_on
from trio_npu_dra.kit.grpc import DEFAULT_LIMITS
from trio_npu_dra.kit.grpc.loop import Loop
from trio_npu_dra.kit.grpc.server_connections import FRAMES_AT_ONCE, Connections

PING = b"\0\0\x08\6\0\0\0\0\0" + bytes(8)


async def test_a_turn_is_for_one_busy_connection(loop: Loop) -> None:
    """Peers that have sent many frames are read in turn, and all else that is due in between."""

    async def feed() -> None:
        connections, pings = Connections(DEFAULT_LIMITS), PING * FRAMES_AT_ONCE * 3
        peers = [connection_on(Wire(), connections, {}) for _ in range(3)]
        for peer in peers:
            peer.data_received(GREETING + pings)
        left = [len(peer._unread) for peer in peers]
        order = list[int]()
        while any(left):
            await asyncio.sleep(0)
            now = [len(peer._unread) for peer in peers]
            order += [number for number, size in enumerate(left) if now[number] < size]
            left = now
        assert order == [0, 1, 2] * (len(order) // 3)
        for peer in peers:
            peer.connection_lost(None)

    await loop.in_asyncio(feed())
