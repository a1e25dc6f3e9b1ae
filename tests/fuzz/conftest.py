"""Shared by the properties: a folder in memory, and trio in a thread of its own."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder for all examples of a module, in memory where possible."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="npu-fuzz-", dir=memory if memory.is_dir() else None
    ) as name:
        yield Path(name)


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of examples must not log to the terminal, nor into pytest's memory."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    """Runs async functions in a thread, where a server lives on from example to example."""
    with start_blocking_portal("trio") as opened:
        yield opened
