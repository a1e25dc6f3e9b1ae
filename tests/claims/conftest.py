"""A node on disk."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from tests.claims.chip_folders import FolderNode, folder_node
from tests.claims.cut_node import CutNode, cut_node
from tests.claims.node import NodeOnDisk, claim, result
from tests.claims.restarted import prepare
from tests.claims.stepping import Driver, driver_on
from tests.holds.entries import entry
from trio_npu_dra.agent.holds.encoding import encode

NOBODY = 65534


@pytest.fixture
def node(tmp_path: Path) -> NodeOnDisk:
    """A node with eight NPUs and no claims."""
    return NodeOnDisk(tmp_path / "node")


@pytest.fixture
def quick_node() -> Iterator[NodeOnDisk]:
    """A node in memory, for tests that prepare thousands of times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield NodeOnDisk(Path(folder) / "node")


@pytest.fixture
async def cut(tmp_path: Path, simulator: Path) -> AsyncIterator[CutNode]:
    """A server with eight 910B4, which are cut."""
    async with cut_node(tmp_path / "node", simulator) as node:
        with trio.fail_after(60):
            yield node


@pytest.fixture
def folders(quick_node: NodeOnDisk) -> FolderNode:
    """A node with two chips that are cut, without a library."""
    return folder_node(quick_node)


@pytest.fixture
def driver(quick_node: NodeOnDisk) -> Driver:
    """An instance; claims a and b want NPU 2, c wants NPU 3."""
    return driver_on(quick_node)


@pytest.fixture
def rightless_node() -> Iterator[NodeOnDisk]:
    """A node of a user whom permission bits stop; root becomes one while the test runs."""
    encode(entry("uid-x", 0))  # loads modules that this user may not read
    with tempfile.TemporaryDirectory() as folder:
        was_root = os.geteuid() == 0
        if was_root:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield NodeOnDisk(Path(folder) / "node")
        finally:
            if was_root:
                os.seteuid(0)


@pytest.fixture
async def two_claims(node: NodeOnDisk) -> NodeOnDisk:
    """A node on which claims a and b hold NPUs 2 and 3, and c is allocated a's."""
    node.source.store(
        claim("a", result("npu-2")), claim("b", result("npu-3")), claim("c", result("npu-2"))
    )
    assert await prepare(node, "a", "b") == {"a": "", "b": ""}
    return node
