"""A socket path for the tests of gRPC."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The socket of the server under test."""
    return tmp_path / "dra.sock"
