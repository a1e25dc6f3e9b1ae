"""An open bridge or loop and a socket path for the tests of rpc."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from trio_npu_dra.kit.grpc import Bridge, open_bridge
from trio_npu_dra.kit.grpc.loop import Loop, open_loop


@pytest.fixture
async def bridge() -> AsyncIterator[Bridge]:
    """An open bridge."""
    async with open_bridge() as opened:
        yield opened


@pytest.fixture(name="loop")
async def opened_loop() -> AsyncIterator[Loop]:
    """An open loop, and some time to use it."""
    with trio.fail_after(100):
        async with open_loop() as opened:
            yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The socket of the server under test."""
    return tmp_path / "dra.sock"
