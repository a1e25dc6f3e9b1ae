"""A node to examine; this process is in no pod, and keeps its log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.rig.doctor_nodes import Node, node


@pytest.fixture(autouse=True)
def _log() -> Iterator[None]:
    """The log stays as it is, although the command in this process configures it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked, wherever the tests run."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.fixture
def healthy(folder: Path, simulator: Path) -> Iterator[Node]:
    """A node on which all is well."""
    with node(folder, simulator) as made:
        yield made
