"""A cluster that kind makes of docker containers, on machines with both."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dev.cluster.api import ApiServer
from dev.cluster.cluster import Cluster
from dev.cluster.images import UBUNTU, UBUNTU_LDPATH
from dev.cluster.processes import ClusterError, run
from dev.kind.node import KindNode

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAMS = ("docker", "kind", "kubectl")
OLDEST = (1, 36)
"""The oldest Kubernetes in which every feature that the tests use is on by default."""
HUB = "docker.io/"


def usable() -> bool:
    """Whether this machine has the programs, and docker answers."""
    if not all(shutil.which(program) for program in PROGRAMS):
        return False
    try:
        run("docker", "info", timeout=30)
    except ClusterError:  # only docker's client is there
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class KindCluster(Cluster):
    """The running cluster; `nodes` are its workers, `kubeconfig` may do everything."""

    name: str
    folder: Path
    logs: Path
    audit_log: Path
    kubeconfig: Path
    nodes: tuple[KindNode, ...]

    @classmethod
    def start(cls, *, nodes: int = 1) -> KindCluster:
        """Make it, with the Kubernetes of the installed kind, and wait until it is Ready.

        Args:
            nodes: how many workers are used; there are as many as the configuration says.

        Raises:
            ClusterError: kind failed, or its Kubernetes is too old.
        """
        name = f"trio-npu-dra-{os.getpid()}-{secrets.token_hex(3)}"
        folder = Path(tempfile.gettempdir()) / name
        logs = folder / "logs"
        logs.mkdir(parents=True)
        kubeconfig = folder / "kubeconfig"
        with ExitStack() as broken:
            broken.callback(shutil.rmtree, folder)
            broken.callback(run, "kind", "delete", "cluster", "--name", name)
            run(
                *("kind", "create", "cluster", "--name", name, "--wait", "3m"),
                *("--config", HERE / "cluster.yaml", "--kubeconfig", kubeconfig),
                cwd=ROOT,  # paths in the configuration are relative to it
            )
            plane = KindNode.find(f"{name}-control-plane")
            cluster = cls(
                name=name,
                folder=folder,
                logs=logs,
                audit_log=plane.root / "var/log/kubernetes/audit.log",
                kubeconfig=kubeconfig,
                nodes=tuple(
                    KindNode.find(f"{name}-worker{number if number > 1 else ''}")
                    for number in range(1, nodes + 1)
                ),
            )
            cluster._check_version()
            cluster._provide_variant()
            cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=120s")
            broken.pop_all()
        return cluster

    @property
    def node(self) -> KindNode:
        """The first worker."""
        return self.nodes[0]

    @cached_property
    def api(self) -> ApiServer:
        """Its API server, asked with all rights."""
        return ApiServer.of(self.kubeconfig)

    def kubectl(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its stdout, raises ClusterError."""
        return run("kubectl", "--kubeconfig", self.kubeconfig, *args, stdin=stdin, timeout=300)

    def helm(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run the machine's Helm as the administrator; returns its stdout, raises ClusterError."""
        return run("helm", "--kubeconfig", self.kubeconfig, *args, stdin=stdin, timeout=300)

    def provide_image(
        self, context: Path, *, target: str | None = None, name: str, is_final: bool = False
    ) -> None:
        """Build an image with docker and load it into the nodes."""
        whole = name if "." in name.partition("/")[0] else f"{HUB}{name}"
        if not (is_final and run("docker", "images", "--quiet", whole)):
            which = ("--target", target) if target else ()
            run("docker", "build", "--tag", whole, *which, context, timeout=1800)
        self._load(whole)

    def stop(self, *, keep_logs: bool = False) -> Path | None:
        """End and remove everything; returns the folder of the logs if they are kept."""
        if "api" in vars(self):  # it may never have been used
            self.api.close()
        if keep_logs:
            run("kind", "export", "logs", self.logs, "--name", self.name)
        run("kind", "delete", "cluster", "--name", self.name)
        if keep_logs:
            self.kubeconfig.unlink()
            return self.logs
        shutil.rmtree(self.folder)
        return None

    def left_behind(self) -> list[str]:
        """Containers of the stopped cluster."""
        label = f"label=io.x-k8s.kind.cluster={self.name}"
        return run("docker", "ps", "--all", "--filter", label, "--format", "{{.Names}}").split()

    def _check_version(self) -> None:
        server = json.loads(self.kubectl("version", "--output", "json"))["serverVersion"]
        words = str(server["gitVersion"]).removeprefix("v").split(".")
        if (int(words[0]), int(words[1])) < OLDEST:
            oldest = ".".join(str(number) for number in OLDEST)
            raise ClusterError(
                f"the installed kind makes clusters of Kubernetes {server['gitVersion']}; "
                f"the tests need {oldest} or newer: update kind"
            )

    def _provide_variant(self) -> None:
        """Load the one image that pods of the tests name and that no public registry has."""
        recipe = UBUNTU_LDPATH.recipe.replace("PARENT", f"{HUB}{UBUNTU.name}")
        variant = f"{HUB}{UBUNTU_LDPATH.name}"
        run("docker", "build", "--tag", variant, "-", stdin=recipe)
        self._load(variant)

    def _load(self, name: str) -> None:
        run("kind", "load", "docker-image", name, "--name", self.name)
