"""What is written in one turn of the loop leaves with one system call."""

from __future__ import annotations

import asyncio

import h2.config
import h2.connection
import h2.events
import pytest
from trio.testing import wait_all_tasks_blocked

from tests.rpc.peer import begin_call
from tests.rpc.serving import ECHO, echo
from tests.rpc.wire import Wire, connection_on
from trio_npu_dra.rpc import DEFAULT_LIMITS
from trio_npu_dra.rpc.gathering import GATHERED_BYTES, GatheringTransport
from trio_npu_dra.rpc.loop import Loop
from trio_npu_dra.rpc.requests import Requests
from trio_npu_dra.rpc.server import _Calls
from trio_npu_dra.rpc.server_connections import Connections, ServerConnection


async def test_writes_of_a_turn_leave_together(loop: Loop) -> None:
    """In their order, without waiting for anything else; those of the next turn are apart."""
    wire = Wire()

    async def write() -> None:
        transport = GatheringTransport(wire)
        for data in (b"1", bytearray(b"2"), memoryview(b"3")):
            transport.write(data)
        assert not wire.writes
        await asyncio.sleep(0)
        assert wire.writes == [b"123"]
        transport.write(b"4")

    await loop.in_asyncio(write())
    await loop.synchronize()
    assert wire.writes == [b"123", b"4"]


async def test_what_is_gathered_is_bounded(loop: Loop) -> None:
    """Asyncio learns of a peer that does not read before much memory has gone."""
    wire = Wire()

    async def write() -> None:
        transport = GatheringTransport(wire)
        for _ in range(5):
            transport.write(bytes(GATHERED_BYTES // 2))
        assert [len(data) for data in wire.writes] == [GATHERED_BYTES] * 2

    await loop.in_asyncio(write())


@pytest.mark.parametrize("how", ["closed", "lost"])
async def test_an_end_comes_after_what_was_written(loop: Loop, *, how: str) -> None:
    """A connection that is closed sends all before; one that is lost sends no more."""
    wire = Wire()

    async def write() -> None:
        transport = GatheringTransport(wire)
        transport.write(b"1")
        if how == "lost":
            wire.abort()
        transport.close()
        transport.write(b"2")
        assert transport.is_closing()

    await loop.in_asyncio(write())
    await loop.synchronize()
    assert wire.writes == ([b"1"] if how == "closed" else [])


async def test_a_reply_is_one_write(loop: Loop) -> None:
    """Its headers, its message and its trailers, and those of other calls that end with it."""
    wire, peer = Wire(), h2.connection.H2Connection(h2.config.H2Configuration())
    peer.initiate_connection()

    async def connect() -> ServerConnection:
        calls = _Calls(loop, [ECHO.handled_by(echo)], Requests(loop, DEFAULT_LIMITS)).__mapping__()
        return connection_on(wire, Connections(DEFAULT_LIMITS), dict(calls))

    async def feed(connection: ServerConnection) -> None:
        connection.data_received(peer.data_to_send())

    connection = await loop.in_asyncio(connect())
    await loop.in_asyncio(feed(connection))
    await wait_all_tasks_blocked()
    peer.receive_data(b"".join(wire.writes))
    for calls in (1, 2):
        wire.writes.clear()
        for _ in range(calls):
            begin_call(peer)
        await loop.in_asyncio(feed(connection))
        await wait_all_tasks_blocked()
        writes = [[type(event) for event in peer.receive_data(data)] for data in wire.writes]
        assert [kinds.count(h2.events.ResponseReceived) for kinds in writes].count(calls) == 1
        reply = next(kinds for kinds in writes if h2.events.ResponseReceived in kinds)
        assert reply.count(h2.events.DataReceived) == calls
        assert reply.count(h2.events.TrailersReceived) == calls
    connection.connection_lost(None)
