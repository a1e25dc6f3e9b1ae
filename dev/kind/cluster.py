"""A cluster that kind makes of docker containers."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from dev.cluster import binaries, cgroups, images
from dev.cluster.api import ApiServer, Object
from dev.cluster.cluster import Cluster
from dev.cluster.images import PYTHON, UBUNTU, UBUNTU_LDPATH
from dev.cluster.leftovers import left_of
from dev.cluster.network import Network
from dev.cluster.processes import ClusterError, run
from dev.cluster.registry import Registry
from dev.cluster.releases import DEFAULT, RELEASES
from dev.kind.engine import Engine, answers
from dev.kind.node import KindNode
from dev.kind.node_image import node_image

HERE = Path(__file__).parent
PROGRAMS = ("kind", "kubectl", "helm")
OLDEST = (1, 36)
"""The oldest Kubernetes in which every feature that the tests use is on by default."""
HUB = "docker.io/"


def usable() -> bool:
    """Whether this machine has a docker that answers, and the programs besides."""
    return all(shutil.which(program) for program in PROGRAMS) and answers()


@dataclass(frozen=True, kw_only=True)
class KindCluster(Cluster):
    """The running cluster; `nodes` are its workers, `kubeconfig` may do everything.

    With a docker of our own, nodes are of the version `kubernetes`, and pull from `registry`; with
    this machine's, they are of kind's version and pull from where all do.
    """

    name: str
    folder: Path
    logs: Path
    audit_log: Path
    kubeconfig: Path
    kubernetes: str
    engine: Engine
    registry: Registry | None
    nodes: tuple[KindNode, ...]

    @classmethod
    def start(
        cls, *, workers: int = 1, version: str = DEFAULT, name: str = "", outlives: bool = False
    ) -> KindCluster:
        """Make it, and wait until it is Ready.

        Args:
            workers: How many it has; all but the first have the taint APART.
            version: The Kubernetes of nodes that are built here.
            name: Its name, by default one of its own.
            outlives: Whether it goes on when this process ends.

        Raises:
            ClusterError: Docker or kind failed, or kind's Kubernetes is too old.
        """
        name = name or f"trio-npu-dra-{os.getpid()}-{secrets.token_hex(3)}"
        folder = Path(tempfile.gettempdir()) / name
        logs = folder / "logs"
        logs.mkdir(parents=True)
        kubeconfig = folder / "kubeconfig"
        with ExitStack() as broken:
            broken.callback(shutil.rmtree, folder)
            engine = Engine.start(f"{name}-docker", logs=logs, outlives=outlives)
            broken.callback(engine.stop)
            config = folder / "kind.yaml"
            config.write_text(yaml.safe_dump(_configuration(engine, workers)))
            image = node_image(engine, RELEASES[version]) if engine.is_ours else ""
            broken.callback(_kind, engine, "delete", "cluster", "--name", name)
            _kind(
                *(engine, "create", "cluster", "--name", name, "--wait", "3m"),
                *(("--image", image) if image else ()),
                *("--config", config, "--kubeconfig", kubeconfig),
            )
            plane = KindNode.find(engine, f"{name}-control-plane")
            found = _workers(engine, name, workers)
            registry = None
            if engine.is_ours:
                registry = _start_registry(engine, folder, logs, outlives=outlives)
                broken.callback(registry.stop)
                for node in (plane, *found):
                    registry.serve_all(node.root / "etc/containerd/certs.d")
            cluster = cls(
                name=name,
                folder=folder,
                logs=logs,
                audit_log=plane.root / "var/log/kubernetes/audit.log",
                kubeconfig=kubeconfig,
                kubernetes=version,
                engine=engine,
                registry=registry,
                nodes=found,
            )
            cluster._check_version()
            cluster._provide_named_images()
            cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=120s")
            broken.pop_all()
        return cluster

    def saved(self) -> dict[str, int | str]:
        """What `found` needs to know of it."""
        return {
            "kubernetes": self.kubernetes,
            "workers": len(self.nodes),
            "docker": self.engine.pid or 0,
            "registry": self.registry.program.pid or 0 if self.registry else 0,
        }

    @classmethod
    def found(cls, name: str, saved: Mapping[str, Any]) -> KindCluster:
        """One that another process has made."""
        folder = Path(tempfile.gettempdir()) / name
        engine = Engine(state=Path(f"{folder}-docker"), pid=saved["docker"] or None)
        plane = KindNode.find(engine, f"{name}-control-plane")
        return cls(
            name=name,
            folder=folder,
            logs=folder / "logs",
            audit_log=plane.root / "var/log/kubernetes/audit.log",
            kubeconfig=folder / "kubeconfig",
            kubernetes=saved["kubernetes"],
            engine=engine,
            registry=None,
            nodes=_workers(engine, name, saved["workers"]),
        )

    @property
    def node(self) -> KindNode:
        """The first worker."""
        return self.nodes[0]

    @cached_property
    def api(self) -> ApiServer:
        """Its API server, asked with all rights."""
        return ApiServer.of(self.kubeconfig, network=self.engine.network)

    def kubectl(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its stdout, raises ClusterError."""
        return run(*self.asking("kubectl"), *args, stdin=stdin, timeout=300)

    def helm(self, *args: str | Path, stdin: str | None = None) -> str:
        """Run Helm as the administrator; returns its stdout, raises ClusterError."""
        return run(*self.asking("helm"), *args, stdin=stdin, timeout=300)

    def asking(self, program: str) -> tuple[str | Path, ...]:
        """The beginning of a command by which kubectl or helm asks it."""
        found: str | Path = program
        if self.engine.is_ours:
            built = binaries.kubernetes(self.kubernetes).place / "kubectl"
            found = built if program == "kubectl" else binaries.helm()
        return (*self.engine.inside(), found, "--kubeconfig", self.kubeconfig)

    def provide_image(
        self, context: Path, *, target: str | None = None, name: str, is_final: bool = False
    ) -> None:
        """Build an image with docker and load it into the nodes."""
        whole = name if "." in name.partition("/")[0] else f"{HUB}{name}"
        if not (is_final and self.engine.has(whole)):
            words = ["--target", target] if target else []
            if self.engine.is_ours:  # no registry has the base image
                words += ["--build-arg", f"PYTHON_IMAGE={self.engine.load(PYTHON)}"]
            self.engine.run("docker", "build", "--tag", whole, *words, context, timeout=1800)
        _kind(self.engine, "load", "docker-image", whole, "--name", self.name)

    def stop(self, *, keep_logs: bool = False) -> Path | None:
        """End and remove everything; returns the folder of the logs if they are kept."""
        if "api" in vars(self):  # it may never have been used
            self.api.close()
        try:
            if keep_logs:
                self._export_logs()
        finally:
            if self.registry:
                self.registry.stop()
            _kind(self.engine, "delete", "cluster", "--name", self.name)
            self.engine.stop()
        if keep_logs:
            self.kubeconfig.unlink()
            return self.logs
        shutil.rmtree(self.folder)
        return None

    def left_behind(self) -> list[str]:
        """Containers of the stopped cluster, or all that a docker of our own could have left."""
        if self.engine.is_ours:
            return left_of(self.name)
        label = f"label=io.x-k8s.kind.cluster={self.name}"
        return run("docker", "ps", "--all", "--filter", label, "--format", "{{.Names}}").split()

    def _export_logs(self) -> None:
        try:
            _kind(self.engine, "export", "logs", self.logs, "--name", self.name)
        except ClusterError as partly:  # one of a broken node's logs is enough for that
            (self.logs / "not-exported.txt").write_text(f"{partly}\n")

    def _check_version(self) -> None:
        server = json.loads(self.kubectl("version", "--output", "json"))["serverVersion"]
        words = str(server["gitVersion"]).removeprefix("v").split(".")
        if (int(words[0]), int(words[1])) < OLDEST:
            oldest = ".".join(str(number) for number in OLDEST)
            raise ClusterError(
                f"the installed kind makes clusters of Kubernetes {server['gitVersion']}; "
                f"the tests need {oldest} or newer: update kind"
            )

    def _provide_named_images(self) -> None:
        """Let nodes find the images that pods of the tests name and no public registry has."""
        if self.registry:
            for base in (UBUNTU, UBUNTU_LDPATH):
                images.push(base.ready(), self.registry, base.name)
            return
        recipe = UBUNTU_LDPATH.recipe.replace("PARENT", f"{HUB}{UBUNTU.name}")
        variant = f"{HUB}{UBUNTU_LDPATH.name}"
        self.engine.run("docker", "build", "--tag", variant, "-", stdin=recipe)
        _kind(self.engine, "load", "docker-image", variant, "--name", self.name)


def _kind(engine: Engine, *words: str | Path) -> str:
    programs = [binaries.kind().parent] if engine.is_ours else []
    return engine.run("kind", *words, programs=programs)


def _configuration(engine: Engine, workers: int) -> Object:
    """What kind makes: `cluster.yaml`, for so many workers, and for the nodes that it gets."""
    config: Object = yaml.safe_load((HERE / "cluster.yaml").read_text())
    plane, first, apart = config["nodes"]
    config["nodes"] = [plane, first, *(apart for _ in range(workers - 1))]
    if engine.is_ours:  # its nodes have neither kind's network agent nor a name server
        config["networking"] = {"disableDefaultCNI": True}
        skipped = "kind: InitConfiguration\nskipPhases: [preflight, addon/coredns]\n"
        config["kubeadmConfigPatches"].append(skipped)
    if cgroups.hierarchies("cgroup"):
        # With systemd's driver and cgroups of version 1 runc freezes a container to set its device
        # rules; now and then it cannot, and the container does not start.
        driver = "kind: KubeletConfiguration\ncgroupDriver: cgroupfs\n"
        config["kubeadmConfigPatches"].append(driver)
        runc = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]'
        config["containerdConfigPatches"].append(f"{runc}\n  SystemdCgroup = false\n")
    return config


def _workers(engine: Engine, name: str, number: int) -> tuple[KindNode, ...]:
    names = (f"{name}-worker{each if each > 1 else ''}" for each in range(1, number + 1))
    return tuple(KindNode.find(engine, each) for each in names)


def _start_registry(engine: Engine, folder: Path, logs: Path, *, outlives: bool) -> Registry:
    """Start a registry on the bridge of the nodes."""
    form = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
    said = engine.run("docker", "network", "inspect", "kind", "--format", form)
    (address,) = (each for each in said.split() if ":" not in each)
    network = Network(address=address, pid=engine.pid)
    return Registry.start(network, folder=folder, logs=logs, outlives=outlives)
