"""The limits of a TCP port, which a node's network can reach."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
from h2.settings import SettingCodes
from trio.testing import MockClock

from dev.grpc.peer import Peer, connected, on_the_wire
from dev.grpc.serving import ECHO, echo
from trio_npu_dra.kit.grpc import Status, listen_tcp, serve
from trio_npu_dra.kit.grpc._generated.pluginregistration import RegistrationStatus
from trio_npu_dra.kit.grpc.http2 import TABLE_BYTES
from trio_npu_dra.kit.grpc.server import NETWORK


@pytest.fixture
def port(nursery: trio.Nursery) -> int:
    """A port that is served."""
    listener = listen_tcp(0, host="127.0.0.1")
    nursery.start_soon(serve, listener, [ECHO.handled_by(echo)])
    number: int = listener.socket.getsockname()[1]
    return number


async def called(peer: Peer) -> None:
    """A call that must succeed."""
    peer.call()
    assert await peer.status() is Status.OK


async def test_one_more_displaces_the_oldest(port: int) -> None:
    """So peers that stay cannot lock a probe out, whatever they have open."""
    async with AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(connected(port)) for _ in range(NETWORK.connections)
        ]
        for peer in peers:
            await called(peer)
        peers[0].call(end=False)
        async with connected(port) as probe:
            await called(probe)
            await peers[0].end()
            await called(peers[1])


async def test_peers_that_hang_up_make_room(port: int) -> None:
    """Nobody is displaced by those that came and went."""
    async with connected(port) as stays:
        for _ in range(2 * NETWORK.connections):
            async with connected(port) as probe:
                await called(probe)
        await called(stays)


@pytest.mark.parametrize("data", [b"", b"PRI *", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\4\0"])
async def test_an_idle_peer_is_hung_up_on(mock_clock: MockClock, port: int, data: bytes) -> None:
    """That holds whatever it has begun."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(data)
        mock_clock.autojump_threshold = 0.05
        while await stream.receive_some():
            pass
    assert trio.current_time() >= NETWORK.idle_seconds


async def test_a_long_request_is_refused(port: int) -> None:
    """A probe names a service, no more; the connection serves its next request."""
    async with connected(port) as peer:
        peer.call(data=on_the_wire(RegistrationStatus(error="x" * NETWORK.message_bytes)))
        assert await peer.status() is Status.RESOURCE_EXHAUSTED
        await called(peer)


@pytest.mark.parametrize(("asked", "kept"), [(0, 0), (100, 100), (1 << 30, TABLE_BYTES)])
async def test_a_peer_chooses_the_table_of_headers_up_to_a_size(
    port: int, asked: int, kept: int
) -> None:
    """Texts of errors are kept in it, and HTTP/2 lets it have 4 GiB."""
    async with connected(port) as peer:
        peer.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: asked})
        await called(peer)
        assert peer.h2.decoder.header_table_size == kept
