"""Commands that run in this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _same_log() -> Iterator[None]:
    """The log of this process stays as it is, although a command configures it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def bare(tmp_path: Path) -> list[str]:
    """Flags of a node without NPUs."""
    return [f"--{name}-root={tmp_path}" for name in ("host", "dev", "sysfs")]
