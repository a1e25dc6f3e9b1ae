"""The loop below everything: the errors that leave it, and the cancellations that reach it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import trio

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.grpc import Bridge, open_bridge


async def test_an_error_leaves_the_bridge_as_it_was_raised() -> None:
    """No exception group of the loop's own nurseries wraps an error inside."""
    with pytest.raises(ConfigError, match="plain"):
        async with open_bridge():
            raise ConfigError("plain")


async def test_a_cancelled_bridge_closes_its_sockets(tmp_path: Path) -> None:
    """Cancelling everything around the bridge stops its servers in order."""
    path = tmp_path / "dra.sock"
    with trio.fail_after(20), trio.CancelScope() as scope:
        async with open_bridge() as bridge, trio.open_nursery() as nursery:
            await nursery.start(bridge.serve_unix, path, [])
            assert await trio.Path(path).is_socket()
            scope.cancel()
    assert scope.cancelled_caught
    assert not await trio.Path(path).exists()


async def test_an_error_of_a_connection_is_a_line_in_the_log(
    bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    """What a peer sends may break its connection, not the daemon."""

    class Broken(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise ValueError(data)

    ours, theirs = socket.socketpair()
    loop = bridge._loop
    with theirs, trio.fail_after(20):
        await loop.in_asyncio(loop.asyncio.connect_accepted_socket(Broken, ours))
        theirs.sendall(b"nonsense")
        await trio.lowlevel.wait_readable(theirs)
        assert not theirs.recv(1)
    assert [vars(record)["error"] for record in caplog.records] == ["ValueError(b'nonsense')"]


async def test_two_bridges_live_side_by_side(tmp_path: Path) -> None:
    """A second loop in the same run, such as a stand-in's, disturbs nothing."""
    with trio.fail_after(20):
        async with open_bridge() as one, open_bridge() as two, trio.open_nursery() as nursery:
            await nursery.start(one.serve_unix, tmp_path / "one.sock", [])
            await nursery.start(two.serve_unix, tmp_path / "two.sock", [])
            nursery.cancel_scope.cancel()
