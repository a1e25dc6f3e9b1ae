"""An open bridge and a socket path for the tests of rpc."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trio_npu_dra.rpc import Bridge, open_bridge


@pytest.fixture
async def bridge() -> AsyncIterator[Bridge]:
    """An open bridge."""
    async with open_bridge() as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The socket of the server under test."""
    return tmp_path / "dra.sock"
