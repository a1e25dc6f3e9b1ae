"""A node on disk, and a driver in a hurry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.claims.node import NodeOnDisk
from trio_npu_dra.agent.device_plugin import node_plugins, pods
from trio_npu_dra.kit.kubelet.device_plugin import registration


@pytest.fixture
def node(tmp_path: Path) -> NodeOnDisk:
    """A node with eight NPUs."""
    return NodeOnDisk(tmp_path / "n")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other faster than on a node."""
    monkeypatch.setattr(registration, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(pods, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(pods, "SOON_SECONDS", 0.05)
    monkeypatch.setattr(node_plugins, "_UNUSED_SECONDS", 0.05)
    monkeypatch.setattr(node_plugins, "_FILE_SECONDS", 0.05)
