"""A node with two claims."""

from pathlib import Path

import pytest

from tests.claims.node import NodeOnDisk, claim, result


@pytest.fixture
def node(tmp_path: Path) -> NodeOnDisk:
    """A node with claims a and b for NPUs 2 and 3."""
    node = NodeOnDisk(tmp_path / "n")
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    return node
