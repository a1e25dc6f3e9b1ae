"""Kubernetes and other programs, built from their Go modules into a cache.

`python -m dev.cluster.binaries` builds what is missing; the first time takes
several minutes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.processes import run
from dev.cluster.releases import BY_NEED

HERE = Path(__file__).parent
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The build of one pair of go.mod and go.sum."""

    name: str
    version: str
    packages: tuple[str, ...]
    variables: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    with_c: bool = False

    @property
    def folder(self) -> Path:
        """The folder in the tree with the module files (and main.go, if it is ours)."""
        return HERE / self.name

    @property
    def inputs(self) -> dict[str, bytes]:
        """The input files of the build, by the name that Go expects."""
        files = {
            "go.mod": self.folder / f"{self.version}.mod",
            "go.sum": self.folder / f"{self.version}.sum",
            **{source.name: source for source in self.folder.glob("*.go")},
        }
        return {name: path.read_bytes() for name, path in sorted(files.items())}

    @property
    def place(self) -> Path:
        """Its folder in the cache: changed inputs get another one."""
        key = hashlib.sha256(b"\0".join(self.inputs.values())).hexdigest()[:12]
        return cache() / f"{self.name}-{self.version}-{key}"

    def ready(self) -> Path:
        """Build it if it is not in the cache.

        Returns:
            The folder that holds the programs.

        Raises:
            ClusterError: the build failed.
        """
        with locked(f"{self.name}-{self.version}"):
            if not self.place.exists():
                self._build()
        return self.place

    def _build(self) -> None:
        began = time.monotonic()
        print(f"building {self.name} {self.version} into {self.place}", flush=True)
        with workspace(self.name) as temp:
            work, out = Path(temp, "work"), Path(temp, "out")
            work.mkdir()
            out.mkdir()
            for name, content in self.inputs.items():
                (work / name).write_bytes(content)
            values = " ".join(f"-X {variable}" for variable in self.variables)
            run(
                # Tests that run meanwhile have priority.
                *("nice", "-n", "19", "go", "build", "-p", "2", "-trimpath", "-mod=readonly"),
                *("-ldflags", f"-s -w {values}", "-tags", ",".join(self.tags)),
                *("-o", f"{out}/", *self.packages),
                env={"CGO_ENABLED": str(int(self.with_c))},
                cwd=work,
                timeout=3600,
            )
            for name, target in self.links:
                (out / name).symlink_to(target)
            out.rename(self.place)
        print(f"built {self.name} {self.version} in {time.monotonic() - began:.0f} s", flush=True)


def module(path: str, version: str) -> Path:
    """The folder with the sources of a Go module."""
    told = run("go", "mod", "download", "-json", f"{path}@{version}", cwd=cache())
    return Path(json.loads(told)["Dir"])


def cache() -> Path:
    """The folder outside the tree that keeps slow builds."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(base) / "trio-npu-dra"
    place.mkdir(parents=True, exist_ok=True)
    return place


def workspace(name: str) -> tempfile.TemporaryDirectory[str]:
    """A folder in the cache to make something in; `leftovers` removes those of the killed."""
    return tempfile.TemporaryDirectory(dir=cache(), prefix=f"trio-npu-dra-{os.getpid()}-{name}-")


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Exclude other sessions while this one makes a thing of the cache."""
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kubernetes(version: str) -> Build:
    """etcd, the control plane, kubelet and kubectl: one program under six names."""
    return _of_kubernetes("kubernetes", version, *PARTS, "kubectl")


def kubeadm(version: str) -> Build:
    """What kind's nodes have besides: kubeadm and kube-proxy, one program under two names."""
    return _of_kubernetes("kubeadm", version, "kube-proxy")


def _of_kubernetes(name: str, version: str, *links: str) -> Build:
    major, minor, _ = version.split(".")
    package = "k8s.io/component-base/version"
    return Build(
        name=name,
        version=version,
        packages=(".",),
        # Clients tell versions apart by the version that the server reports.
        variables=(
            f"{package}.gitVersion=v{version}",
            f"{package}.gitMajor={major}",
            f"{package}.gitMinor={minor}",
            f"{package}.gitTreeState=clean",
        ),
        links=tuple((link, name) for link in links),
    )


def containerd(version: str) -> Build:
    """Containerd, its shim for runc, and ctr."""
    module = "github.com/containerd/containerd"
    if not version.startswith("1."):
        module += f"/v{version.partition('.')[0]}"
    return Build(
        name="containerd",
        version=version,
        packages=tuple(f"{module}/cmd/{program}" for program in CONTAINERD),
        variables=(f"{module}/version.Version={version}",),
    )


def kind() -> Path:
    """The program kind."""
    build = Build(name="kind", version="0.33.0", packages=("sigs.k8s.io/kind",), variables=())
    return build.ready() / "kind"


def runc() -> Path:
    """The runc of kind's nodes; Debian's gives hooks the variables of a container's image."""
    build = Build(
        name="runc",
        version="1.4.3",
        packages=("github.com/opencontainers/runc",),
        variables=(),
        tags=("seccomp",),
        with_c=True,
    )
    return build.ready() / "runc"


def cni_plugins() -> Path:
    """The folder of the CNI plugins of kind's nodes."""
    plugins = ("ipam/host-local", "main/loopback", "main/ptp", "meta/portmap")
    build = Build(
        name="cni-plugins",
        version="1.9.1",
        packages=tuple(
            f"github.com/containernetworking/plugins/plugins/{each}" for each in plugins
        ),
        variables=(),
    )
    return build.ready()


def helm() -> Path:
    """The program helm; building it takes three minutes of CPU."""
    version = "4.3.1"
    build = Build(
        name="helm",
        version=version,
        packages=("helm.sh/helm/v4/cmd/helm",),
        variables=(f"helm.sh/helm/v4/internal/version.version=v{version}",),
    )
    return build.ready() / "helm"


def dra_example_driver() -> Path:
    """Kubernetes' example of a DRA driver, the template of most drivers."""
    program = "dra-example-kubeletplugin"
    build = Build(
        name="dra-example-driver",
        version="0.4.0",
        packages=(f"sigs.k8s.io/dra-example-driver/cmd/{program}",),
        variables=(),
    )
    return build.ready() / program


def grpc_peer() -> Path:
    """The other end of a socket (`grpc-peer/main.go`), by the gRPC of the default kubelet."""
    build = Build(name="grpc-peer", version="1.79.3", packages=(".",), variables=())
    return build.ready() / "grpc-peer"


def metadata_reader(version: str) -> Path:
    """Reads device metadata from its standard input, with the reader of a Kubernetes release."""
    build = Build(name="metadata-reader", version=version, packages=(".",), variables=())
    return build.ready() / "metadata-reader"


def pause() -> Path:
    """The program that is process 1 of pods and of the node, linked statically."""
    source = HERE / "pause.c"
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    place = cache() / f"pause-{key}"
    with locked("pause"):
        if not place.exists():
            compiler = shutil.which("cc") or "gcc"
            with workspace("pause") as temp:
                run(compiler, "-Os", "-static", "-s", "-o", Path(temp, "pause"), source)
                Path(temp).chmod(0o755)
                shutil.copytree(temp, place)
    return place / "pause"


def main() -> None:
    """Build Helm and every version of the table, the default one first."""
    pause()
    print(helm())
    for release in BY_NEED:
        print(kubernetes(release.kubernetes).ready())
        print(containerd(release.containerd).ready())


if __name__ == "__main__":
    main()
