"""A node for the attacks, with tight limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dev.rig.parts import Rig, served_rig


@pytest.fixture
async def rig(folder: Path, simulator: Path) -> AsyncIterator[Rig]:
    """A node whose daemon has an HTTP port."""
    async with served_rig(folder, simulator, http_port=0, seconds=180) as rig:
        yield rig
