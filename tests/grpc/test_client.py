"""Calls to servers that misbehave."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from trio_npu_dra.kit.grpc import RpcError, Status, methods, open_channel

EMPTY = methods.GET_INFO.request()


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_server_that_hangs_up_is_unavailable(
    path: Path, nursery: trio.Nursery, greeting: bytes
) -> None:
    """The caller always gets a status, whether the server sends something first or nothing."""
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(str(path))
    listener.listen()

    async def hang_up(stream: trio.SocketStream) -> None:
        if greeting:
            await stream.send_all(greeting)
        await stream.aclose()

    await nursery.start(trio.serve_listeners, hang_up, [trio.SocketListener(listener)])
    async with open_channel(path) as channel:
        for _ in range(20):
            with pytest.raises(RpcError) as caught:
                await channel.unary(methods.GET_INFO, EMPTY, timeout_seconds=5)
            assert caught.value.status is Status.UNAVAILABLE
