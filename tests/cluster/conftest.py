"""Tests that need no more of a cluster than its API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from dev.cluster.control_plane import ControlPlane

pytest_plugins = ["dev.cluster.plugin"]


class Server(Protocol):
    """An API server that this process reaches."""

    def kubectl(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its stdout, raises ClusterError."""
        ...


@pytest.fixture(scope="module")
def server(
    kubernetes_version: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """An API server on loopback: this process is not in the built cluster's network."""
    if request.config.getoption("--on") == "kind":
        yield request.getfixturevalue("cluster")
        return
    folder = tmp_path_factory.mktemp("server")
    plane = ControlPlane.start(
        version=kubernetes_version,
        folder=folder / "plane",
        logs=folder,
    )
    try:
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def administrator(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig with all rights."""
    path = tmp_path_factory.mktemp("administrator") / "kubeconfig"
    path.write_text(
        server.kubectl("config", "view", "--raw", "--flatten", "--minify", "--output", "json")
    )
    return path
