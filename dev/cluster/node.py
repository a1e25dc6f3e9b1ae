"""One node: containerd and kubelet in mount, process and network namespaces of the cluster."""

from __future__ import annotations

import json
import resource
import shutil
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import cgroups
from dev.cluster.api import Object
from dev.cluster.binaries import cache, pause
from dev.cluster.cluster import APART
from dev.cluster.control_plane import ControlPlane
from dev.cluster.processes import Program, run, wait_until
from dev.cluster.registry import Registry

HERE = Path(__file__).parent
NAME = "npu-node"
KUBELET_PORT = 10250
CNI_CONFIG = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [{"type": "bridge"}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A running node.

    It has its own /var/lib/kubelet, /etc/cdi, /usr/local/Ascend and /dev; the machine's are not
    touched. Its process 1 holds all of it: when that ends, every process, container and mount
    ends.
    """

    name: str
    identity: str
    address: str
    folder: Path
    logs: Path
    plane: ControlPlane
    containerd_programs: Path
    first: Program
    running: dict[str, Program]

    @classmethod
    def start(
        cls,
        number: int,
        *,
        identity: str,
        folder: Path,
        logs: Path,
        plane: ControlPlane,
        registry: Registry,
        containerd: tuple[str, Path],
        mounts: Iterable[tuple[Path, str]] = (),
    ) -> Node:
        """Start containerd and the kubelet; returns before the node is Ready.

        Nodes are counted from 1; all but the first have the taint APART. `identity` and `folder`
        are the cluster's, `containerd` is its version and the folder of its programs. `mounts` are
        files and folders of this machine, and where the node sees them; one at /dev becomes the
        node's /dev.

        Raises:
            ClusterError: a program ended at its start.
        """
        version, programs = containerd
        is_first = number == 1
        folder /= f"node-{number}"
        logs = logs if is_first else logs / f"node-{number}"
        logs.mkdir(exist_ok=True)
        _write_containerd_config(folder, version)
        registry.serve_all(folder / "certs.d")
        cgroups.create(f"{identity}-{number}")
        node = cls(
            name=NAME if is_first else f"{NAME}-{number}",
            identity=f"{identity}-{number}",
            address=plane.network.join(number),
            folder=folder,
            logs=logs,
            plane=plane,
            containerd_programs=programs,
            first=_start_first(plane, folder, logs, mounts),
            running={},
        )
        try:
            node._start_all(taints=[] if is_first else [APART])
        except BaseException:
            node.stop()
            raise
        return node

    @property
    def root(self) -> Path:
        """The node's / as this process sees it: files put there are on the node."""
        return Path(f"/proc/{self.first.pid}/root")

    @property
    def pod_logs(self) -> Path:
        """The folder of its pods' logs."""
        return self.logs / "pods"

    def execute(self, *argv: str | Path, timeout: float = 60) -> str:
        """Run a program on the node; returns its stdout, raises ClusterError if it fails."""
        return run(*self._inside(), *argv, timeout=timeout)

    def mount(self, source: Path, target: str) -> None:
        """Show a file or folder of the node's `folder` at a path of the running node."""
        place = Path(target)
        parent = place if source.is_dir() else place.parent
        self.execute("mkdir", "-p", parent)
        if not source.is_dir():
            self.execute("touch", place)
        self.execute("mount", "--rbind", source, place)

    def unmount(self, target: str) -> None:
        """Undo `mount`."""
        self.execute("umount", "--lazy", target)

    def start_kubelet(self) -> None:
        """Start the kubelet (again)."""
        config = self.folder / "kubelet.json"
        kubelet = self.plane.programs / "kubelet"
        self._start(
            "kubelet",
            kubelet,
            f"--config={config}",
            f"--kubeconfig={self.folder / 'kubelet.kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            "--cert-dir=/var/lib/kubelet/pki",
            self.plane.gates,
        )

    def kill_kubelet(self) -> None:
        """End the kubelet with SIGKILL; pods go on."""
        self.running.pop("kubelet").kill()

    def restart_kubelet(self) -> None:
        """Kill the kubelet and start it again."""
        self.kill_kubelet()
        self.start_kubelet()

    def check(self) -> None:
        """Raise ClusterError if containerd or the kubelet has ended by itself."""
        for program in self.running.values():
            program.check()

    def stop(self) -> None:
        """End everything on the node, and remove its cgroup."""
        self.first.kill()
        while self.running:
            self.running.popitem()[1].kill()
        cgroups.remove(self.identity)

    def _start_all(self, *, taints: Sequence[Object]) -> None:
        wait_until(self._has_root, "the node's root", timeout=20)
        containerd = self.containerd_programs / "containerd"
        self._start("containerd", containerd, "--config", self.folder / "containerd.toml")
        wait_until(self._has_containerd, "containerd listens", timeout=30)
        self._write_kubelet_config(taints)
        self.start_kubelet()

    def _start(self, name: str, program: Path, *flags: str | Path) -> None:
        self.running[name] = Program.start(
            name, [*self._inside(), program, *flags], logs=self.logs, child=True
        )

    def _inside(self) -> tuple[str, ...]:
        search = f"PATH={self.containerd_programs}:/usr/sbin:/usr/bin:/sbin:/bin"
        space = ("nsenter", f"--target={self.first.pid}", "--mount", "--pid", "--net", "--wd=/")
        return (*space, "env", search)

    def _has_root(self) -> bool:
        self.first.check()
        pid = self.first.pid
        command = Path(f"/proc/{pid}/cmdline").read_bytes() if pid else b""
        return command.startswith(bytes(pause()))

    def _has_containerd(self) -> bool:
        self.check()
        return (self.root / "run/containerd/containerd.sock").exists()

    def _write_kubelet_config(self, taints: Sequence[Object]) -> None:
        plane = self.plane
        serving = plane.authority.issue(
            f"{self.name}-serving",
            user=f"system:node:{self.name}",
            group="system:nodes",
            hosts=(f"DNS:{self.name}", f"IP:{self.address}"),
        )
        joining = plane.authority.kubeconfig(
            self.name, server=plane.server, user=f"system:node:{self.name}", group="system:nodes"
        )
        for source in (serving.certificate, serving.key, plane.ca):
            shutil.copy(source, self.folder)
        shutil.copy(joining, self.folder / "kubelet.kubeconfig")
        self.pod_logs.mkdir()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": KUBELET_PORT,
            "healthzPort": 0,
            "tlsCertFile": str(self.folder / serving.certificate.name),
            "tlsPrivateKeyFile": str(self.folder / serving.key.name),
            "authentication": {"x509": {"clientCAFile": str(self.folder / plane.ca.name)}},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "registerWithTaints": list(taints),
            "cgroupRoot": f"/{self.identity}",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "resolvConf": "",
            "clusterDNS": [plane.address],
            "clusterDomain": "cluster.local",
            "podLogsDir": str(self.pod_logs),
            "serializeImagePulls": False,
            # A pod that could not start is tried again after this, or up to half as much more.
            "syncFrequency": "10s",
            # What a device plugin has is seen by the scheduler after this.
            "nodeStatusUpdateFrequency": "2s",
            # The node must not manage this machine's memory and disks.
            "oomScoreAdj": 0,
            "maxOpenFiles": files,
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
        }
        (self.folder / "kubelet.json").write_text(json.dumps(config))


def _start_first(
    plane: ControlPlane, folder: Path, logs: Path, mounts: Iterable[tuple[Path, str]]
) -> Program:
    """Start the first process of a node's namespaces, which makes the node's root."""
    pairs = [word for pair in ((logs, str(logs)), *mounts) for word in pair]
    return Program.start(
        "node",
        [
            *(*plane.network.inside, "unshare", "--mount", "--pid", "--fork", "--kill-child"),
            *("--propagation", "private", "--", "sh", HERE / "node_root.sh"),
            *(folder, cache(), pause(), *pairs),
        ],
        logs=logs,
        child=True,
    )


def _write_containerd_config(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    shutil.copytree(HERE / "cni", folder / "cni")
    (folder / "net.d").mkdir()
    (folder / "net.d" / "pods.conflist").write_text(json.dumps(CNI_CONFIG))
    template = HERE / "containerd" / f"{version.partition('.')[0]}.toml"
    text = string.Template(template.read_text()).substitute(folder=folder)
    (folder / "containerd.toml").write_text(text)
