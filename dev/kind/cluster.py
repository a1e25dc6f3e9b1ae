"""A cluster that kind makes of docker containers."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import yaml

from dev.cluster import binaries, cgroups, images
from dev.cluster.api import ApiServer, Object
from dev.cluster.cluster import Cluster
from dev.cluster.images import PYTHON, UBUNTU, UBUNTU_LDPATH, Base
from dev.cluster.leftovers import left_of, remove_dead, remove_left
from dev.cluster.names import start_names
from dev.cluster.network import Network
from dev.cluster.processes import ClusterError, Program, run
from dev.cluster.registry import Registry, configuration, storage
from dev.cluster.releases import DEFAULT, RELEASES, Release
from dev.kind.engine import Engine, answering
from dev.kind.node import KindNode
from dev.kind.node_image import node_image

HERE = Path(__file__).parent
PROGRAMS = ("kind", "kubectl", "helm")
OLDEST = (1, 36)
"""The oldest Kubernetes in which every feature that the tests use is on by default."""
HUB = "docker.io/"
OF_KIND = "io.x-k8s.kind"
"""Begins the labels by which kind knows its containers."""
API_SERVER = Path("/etc/kubernetes/manifests/kube-apiserver.yaml")
SERVER = Path("/usr/bin/docker-registry")
NAMES_ADDRESS = "10.96.0.10"
"""Where pods ask for names, as kubeadm tells the kubelets."""


def usable() -> bool:
    """Whether this machine has a docker (or podman) that answers, and the programs besides."""
    return all(shutil.which(program) for program in PROGRAMS) and answering() != ""


@dataclass(frozen=True, kw_only=True)
class KindCluster(Cluster):
    """The running cluster; `nodes` are its workers, `kubeconfig` may do everything.

    Where no registry can be asked, nodes are of the version `kubernetes`, pull from one that is a
    container beside them, and have `names` for a DNS, unless the cluster outlives this process.
    Else they are of kind's version and pull from where all do.
    """

    name: str
    folder: Path
    logs: Path
    audit_log: Path
    kubeconfig: Path
    kubernetes: str
    engine: Engine
    nodes: tuple[KindNode, ...]
    names: Program | None = None

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
        remove_dead()
        name = name or f"trio-npu-dra-{os.getpid()}-{secrets.token_hex(3)}"
        folder = Path(tempfile.gettempdir()) / name
        logs = folder / "logs"
        logs.mkdir(parents=True)
        kubeconfig = folder / "kubeconfig"
        with ExitStack() as broken:
            broken.callback(remove_left, name)
            engine = Engine.start(f"{name}-docker", logs=logs, outlives=outlives)
            broken.callback(remove, engine, name)
            config = folder / "kind.yaml"
            config.write_text(yaml.safe_dump(_configuration(engine, workers, RELEASES[version])))
            image = ""
            if engine.is_offline:
                _refuse_older(version)
                image = node_image(engine, RELEASES[version])
            _kind(
                *(engine, "create", "cluster", "--name", name, "--wait", "3m"),
                *(("--image", image) if image else ()),
                *("--config", config, "--kubeconfig", kubeconfig),
            )
            plane = KindNode.find(engine, f"{name}-control-plane")
            found = _workers(engine, name, workers)
            names = None
            if engine.is_offline and not outlives:
                names = _start_names(plane, kubeconfig, logs=logs)
                broken.callback(names.kill)
            cluster = cls(
                name=name,
                folder=folder,
                logs=logs,
                audit_log=plane.root / "var/log/kubernetes/audit.log",
                kubeconfig=kubeconfig,
                kubernetes=version,
                engine=engine,
                nodes=found,
                names=names,
            )
            if names:
                cluster._lead_to_names(plane.address)
            if engine.is_offline:
                registry = cluster._start_registry()
                for node in (plane, *found):
                    registry.serve_all(node.root / "etc/containerd/certs.d")
                for base in (UBUNTU, UBUNTU_LDPATH):
                    push = partial(images.push, base.ready(), registry, base.name)
                    cluster.wait_ok(push, "the registry answers")
            else:
                about = json.loads(cluster.kubectl("version", "--output", "json"))
                _refuse_older(about["serverVersion"]["gitVersion"].removeprefix("v"))
                cluster._load_variant()
            cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=120s")
            broken.pop_all()
        return cluster

    @classmethod
    def found(cls, name: str, *, workers: int, version: str = DEFAULT) -> KindCluster:
        """One that another process has made, of so many workers and that version."""
        folder = Path(tempfile.gettempdir()) / name
        engine = Engine.found(f"{name}-docker")
        plane = KindNode.find(engine, f"{name}-control-plane")
        return cls(
            name=name,
            folder=folder,
            logs=folder / "logs",
            audit_log=plane.root / "var/log/kubernetes/audit.log",
            kubeconfig=folder / "kubeconfig",
            kubernetes=version,
            engine=engine,
            nodes=_workers(engine, name, workers),
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
        path = os.environ["PATH"]
        if self.engine.is_ours:
            built = binaries.kubernetes(self.kubernetes).place
            found = built / "kubectl" if program == "kubectl" else binaries.helm()
            path = f"{built}{os.pathsep}{path}"
        # As variables, because no flag may stand before the name of a plugin, which runs it again.
        settings = f"KUBECONFIG={self.kubeconfig}", f"PATH={path}"
        return (*self.engine.inside(), "env", *settings, found)

    @contextmanager
    def api_server_away(self) -> Iterator[None]:
        """Take the static pod away for the block; the kubelet ends and starts it."""
        plane = KindNode.find(self.engine, f"{self.name}-control-plane")
        manifest, aside = API_SERVER, API_SERVER.parent.parent / API_SERVER.name
        plane.execute("mv", manifest, aside)
        try:
            self.wait(lambda: not self._answers(), "no API server")
            yield
        finally:
            plane.execute("mv", aside, manifest)
            self.wait(self._answers, "the API server back")

    def _answers(self) -> bool:
        try:
            return self.api.ask("GET", "/readyz") == "ok"
        except ClusterError:
            return False

    def provide_image(
        self, context: Path, *, target: str | None = None, name: str, is_final: bool = False
    ) -> None:
        """Build an image with docker and load it into the nodes."""
        whole = name if "." in name.partition("/")[0] else f"{HUB}{name}"
        if not (is_final and self.engine.has(whole)):
            words = ["--target", target] if target else []
            if self.engine.is_offline:
                words += ["--build-arg", f"PYTHON_IMAGE={self.engine.load(PYTHON)}"]
            self.engine.build(*words, context, tag=whole)
        self._load(whole)

    def stop(self, *, keep_logs: bool = False) -> Path | None:
        """End and remove everything; returns the folder of the logs if they are kept."""
        if "api" in vars(self):  # it may never have been used
            self.api.close()
        if self.names:
            self.names.kill()
        try:
            if keep_logs:
                self._export_logs()
        finally:
            _end(self.engine, self.name)
        if keep_logs:
            for path in set(self.folder.iterdir()) - {self.logs}:
                path.unlink()
            return self.logs
        remove_left(self.name)
        return None

    def left_behind(self) -> list[str]:
        """Containers of the stopped cluster, or all that a docker of our own could have left."""
        if self.engine.is_ours:
            return left_of(self.name)
        label = f"label={OF_KIND}.cluster={self.name}"
        return self.engine.ask("ps", "--all", "--filter", label, "--format", "{{.Names}}").split()

    def _export_logs(self) -> None:
        try:
            _kind(self.engine, "export", "logs", self.logs, "--name", self.name)
        except ClusterError as partly:  # one of a broken node's logs is enough for that
            (self.logs / "not-exported.txt").write_text(f"{partly}\n")

    def _start_registry(self) -> Registry:
        """Run a registry beside the nodes; kind takes it for its own, and removes it with them."""
        config = self.folder / "registry.json"
        config.write_text(configuration(""))
        name, stored = f"{self.name}-registry", storage()
        self.engine.ask(
            *("run", "--detach", "--name", name, "--network", "kind"),
            *("--label", f"{OF_KIND}.cluster={self.name}", "--label", f"{OF_KIND}.role=registry"),
            *("--volume", f"{config}:{config}:ro", "--volume", f"{stored}:{stored}"),
            *(self.engine.load(_registry()), SERVER, "serve", config),
        )
        address = self.engine.address_of(name)
        return Registry(network=Network(address=address, pid=self.engine.pid))

    def _lead_to_names(self, address: str) -> None:
        """Lead pods that ask for names to the server at an address."""
        meta, port = {"name": "kube-dns"}, {"port": 53, "protocol": "UDP"}
        service: Object = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"clusterIP": NAMES_ADDRESS, "ports": [port]},
        }
        endpoints: Object = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": meta | {"labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": [address]}],
        }
        for each in (service, endpoints):
            self.api.create(each, namespace="kube-system")

    def _load_variant(self) -> None:
        """Give the nodes the one image that pods of the tests name and no public registry has."""
        variant = f"{HUB}{UBUNTU_LDPATH.name}"
        recipe = UBUNTU_LDPATH.recipe.replace("PARENT", f"{HUB}{UBUNTU.name}")
        self.engine.build("-", tag=variant, stdin=recipe)
        self._load(variant)

    def _load(self, image: str) -> None:
        archive = self.folder / "image.tar"
        self.engine.ask("save", "--output", archive, image)
        _kind(self.engine, "load", "image-archive", archive, "--name", self.name)
        archive.unlink()


def remove(engine: Engine, name: str) -> None:
    """End a cluster that may not be whole, and remove all that came with it."""
    _end(engine, name)
    remove_left(name)


def _start_names(plane: KindNode, kubeconfig: Path, *, logs: Path) -> Program:
    """Answer for names in the network of the control plane's node, which has a way to all pods."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:6443"
    inside = kubeconfig.with_name("inside-the-node")
    inside.write_text(yaml.safe_dump(config))
    return start_names(Network(address=plane.address, pid=plane.pid), inside, logs=logs)


def _refuse_older(version: str) -> None:
    major, minor, *_ = version.split(".")
    if (int(major), int(minor)) < OLDEST:
        oldest = ".".join(str(number) for number in OLDEST)
        raise ClusterError(
            f"this cluster of kind would have Kubernetes {version}; the tests need {oldest} or "
            "newer: update kind, or choose another --kubernetes-version"
        )


def _end(engine: Engine, name: str) -> None:
    try:
        if engine.pid != 0:
            _kind(engine, "delete", "cluster", "--name", name)
    finally:
        engine.stop()


def _kind(engine: Engine, *words: str | Path) -> str:
    programs = [binaries.kind().parent] if engine.is_ours else []
    return engine.run("kind", *words, programs=programs)


def _registry() -> Base:
    """An image with this machine's registry."""

    def fill(context: Path) -> None:
        shutil.copy(SERVER, context)

    digest = hashlib.sha256(SERVER.read_bytes()).hexdigest()
    recipe = f"# {digest}\nFROM PARENT\nCOPY {SERVER.name} {SERVER}\n"
    return Base(name="local/registry:1", recipe=recipe, fill=fill, parent=UBUNTU)


def _configuration(engine: Engine, workers: int, release: Release) -> Object:
    """What kind makes: `cluster.yaml`, for so many workers, and for the nodes that it gets."""
    config: Object = yaml.safe_load((HERE / "cluster.yaml").read_text())
    plane, first, apart = config["nodes"]
    config["nodes"] = [plane, first, *(apart for _ in range(workers - 1))]
    if engine.is_offline:  # there is neither kind's network agent nor CoreDNS
        config["networking"] = {"disableDefaultCNI": True}
        gates = (gate.partition("=") for gate in release.gates)
        config["featureGates"] = {name: value == "true" for name, _, value in gates}
        config["runtimeConfig"] = dict.fromkeys(release.apis, "true")
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
