"""A node on disk."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.claims.node import NodeOnDisk


@pytest.fixture
def node(tmp_path: Path) -> NodeOnDisk:
    """A node with eight NPUs and no claims."""
    return NodeOnDisk(tmp_path / "node")


@pytest.fixture
def quick_node() -> Iterator[NodeOnDisk]:
    """The same in memory, for tests that prepare thousands of times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield NodeOnDisk(Path(folder) / "node")
