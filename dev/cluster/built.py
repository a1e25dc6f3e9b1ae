"""A cluster that runs on this machine, built from Go modules and Debian."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dev.cluster import images
from dev.cluster.api import ApiServer
from dev.cluster.binaries import containerd, kubernetes
from dev.cluster.cluster import Cluster
from dev.cluster.control_plane import ControlPlane
from dev.cluster.leftovers import left_of, remove_dead
from dev.cluster.names import start_names
from dev.cluster.network import Network
from dev.cluster.node import Node
from dev.cluster.processes import Program
from dev.cluster.registry import Registry
from dev.cluster.releases import RELEASES, Release


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltCluster(Cluster):
    """The running cluster.

    `identity` names all it makes on the machine; `folder` holds its files and
    `logs`, a part of it, the logs of every program and pod and the audit log.
    """

    identity: str
    folder: Path
    logs: Path
    audit_log: Path
    api: ApiServer
    release: Release
    network: Network
    plane: ControlPlane
    registry: Registry
    names: Program
    nodes: tuple[Node, ...]

    @classmethod
    def start(
        cls, version: str, *, nodes: int = 1, mounts: Iterable[tuple[Path, str]] = ()
    ) -> BuiltCluster:
        """Build what is missing, start everything and wait until the first node is Ready.

        The version is a row of the table in `releases`. `mounts` are files and folders of this
        machine, and where the first node sees them.

        Raises:
            ClusterError: something did not start; the logs stay, the message says where.
        """
        remove_dead()
        release = RELEASES[version]
        runtime = _build(release)
        identity = f"trio-npu-dra-{os.getpid()}-{secrets.token_hex(3)}"
        folder = Path(tempfile.gettempdir()) / identity
        logs = folder / "logs"
        logs.mkdir(parents=True)
        with ExitStack() as broken:
            broken.callback(_clear, folder, keep=logs)
            network = Network.start(identity, logs=logs)
            broken.callback(network.stop)
            plane = ControlPlane.start(
                version=version,
                folder=folder / "plane",
                logs=logs,
                network=network,
            )
            broken.callback(plane.stop)
            registry = Registry.start(network, folder=folder, logs=logs)
            broken.callback(registry.stop)
            names = start_names(network, plane.admin, logs=logs)
            broken.callback(names.kill)
            for base in images.SERVED:
                images.push(base.tag, registry, base.name)
            start_node = partial(
                Node.start,
                identity=identity,
                folder=folder,
                logs=logs,
                plane=plane,
                registry=registry,
                containerd=(release.containerd, runtime),
            )
            cluster = cls(
                identity=identity,
                folder=folder,
                logs=logs,
                audit_log=plane.audit_log,
                api=plane.api,
                release=release,
                network=network,
                plane=plane,
                registry=registry,
                names=names,
                nodes=_start_nodes(nodes, start_node, mounts=mounts, broken=broken),
            )
            cluster.wait(cluster._usable, f"the node Ready (logs: {logs})")
            broken.pop_all()
        return cluster

    @property
    def node(self) -> Node:
        """The first node."""
        return self.nodes[0]

    def kubectl(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its stdout, raises ClusterError."""
        return self.plane.kubectl(*args, stdin=stdin)

    def helm(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run Helm as the administrator; returns its stdout, raises ClusterError."""
        return self.plane.helm(*args, stdin=stdin)

    def api_server_away(self) -> AbstractContextManager[None]:
        """End the API server for the block."""
        return self.plane.api_server_away()

    def provide_image(
        self, context: Path, *, target: str | None = None, name: str, is_final: bool = False
    ) -> None:
        """Build an image with buildah and push it to the cluster's registry."""
        tag = name.rpartition("/")[2]
        if not (is_final and images.image_id(images.in_storage(tag))):
            images.build_driver_image(context, target=target, tag=tag)
        images.push(images.in_storage(tag), self.registry, name)

    def stop(self, *, keep_logs: bool = False) -> Path | None:
        """End and remove everything; returns the folder of the logs if they are kept."""
        for node in self.nodes:
            node.stop()
        self.names.kill()
        for part in (self.registry, self.plane, self.network):
            part.stop()
        _clear(self.folder, keep=self.logs if keep_logs else None)
        return self.logs if keep_logs else None

    def left_behind(self) -> list[str]:
        """A line for each cgroup, process and mount; the network shows as its process."""
        return left_of(self.identity)

    def _usable(self) -> bool:
        node = self.get("node", self.node.name)
        conditions = (node or {}).get("status", {}).get("conditions", [])
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        return ready and self.get("serviceaccount", "default") is not None


def _build(release: Release) -> Path:
    """Build what is missing; the folder of containerd's programs."""
    kubernetes(release.kubernetes).ready()
    runtime = containerd(release.containerd).ready()
    for base in images.SERVED:
        base.ready()
    return runtime


def _start_nodes(
    count: int,
    start: Callable[..., Node],
    *,
    mounts: Iterable[tuple[Path, str]],
    broken: ExitStack,
) -> tuple[Node, ...]:
    """Start nodes, the first of them with *mounts*; *broken* stops those that have started."""
    started: list[Node] = []
    for number in range(1, count + 1):
        node = start(number, mounts=() if started else mounts)
        broken.callback(node.stop)
        started.append(node)
    return tuple(started)


def _clear(folder: Path, *, keep: Path | None) -> None:
    if keep is None:
        shutil.rmtree(folder)
        return
    for path in folder.iterdir():
        if path.is_dir() and path != keep:
            shutil.rmtree(path)
