"""The image of kind's nodes, of the Kubernetes that is built here: no registry has a part in it.

kind makes it by itself (`kind build node-image`), of a base image and an archive like those of a
release of Kubernetes. The base is Debian with the files of kind's own; what kind would pull besides
is in the archive, under the names that it looks for. Two things are in no Go module: kind's network
agent, in whose place a node writes routes, and its provisioner of volumes.

`python -m dev.kind.node_image` makes that of the default version.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev.cluster import images
from dev.cluster.binaries import (
    PARTS,
    Build,
    cni_plugins,
    containerd,
    kind,
    kubeadm,
    kubernetes,
    locked,
    module,
    pause,
    runc,
    workspace,
)
from dev.cluster.images import Base, debian
from dev.cluster.processes import ClusterError, run
from dev.cluster.releases import DEFAULT, RELEASES, Release
from dev.kind.engine import Engine, answering

HERE = Path(__file__).parent
FILES = HERE / "node"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
KIND = ("sigs.k8s.io/kind", "v0.33.0")
DEBIAN = debian(
    "local/kind-debian:1",
    *("systemd", "conntrack", "iptables", "nftables", "iproute2", "ethtool", "mount", "kmod"),
    *("libseccomp2", "pigz", "e2fsprogs", "ca-certificates", "curl", "jq", "procps"),
)
# As kind's own recipe has it; the last line is ours.
SERVICES = """
find /lib/systemd/system/sysinit.target.wants -name systemd-tmpfiles-setup.service -delete
rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/*
rm -f /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/basic.target.wants/*
cd /lib/systemd/system/sockets.target.wants && rm -f *udev* *initctl*
mkdir -p /etc/systemd /etc/kubernetes/manifests
printf '[Journal]\\nReadKMsg=no\\n' >/etc/systemd/journald.conf
ln -sf /usr/lib/systemd/systemd /sbin/init
hook='{"path": "/kind/bin/mount-product-files.sh"}'
ctr oci spec | jq ".hooks.createContainer = [$hook] | del(.process.rlimits)" \\
    >/etc/containerd/cri-base.json
systemctl mask systemd-binfmt.service
systemctl enable kubelet.service containerd.service undo-mount-hacks.service before-kubelet.service
"""
PLANE = """
mkdir -p "$1/usr/sbin" "$1/usr/lib64" "$1/etc" "$1/tmp" "$1/run"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$1/$folder"; done
cd /usr/sbin && cp -a xtables-nft-multi iptables* ip6tables* nft conntrack "$1/usr/sbin"
cp -a /etc/alternatives "$1/etc"
cp -a --parents /usr/lib/*/xtables "$1"
for program in xtables-nft-multi nft conntrack; do ldd "/usr/sbin/$program"; done |
    grep -o '/[^ ]*' | sort -u | while read -r library; do
        mkdir -p "$1${library%/*}"
        cp -L "$library" "$1$library"
    done
"""
"""Lays out what kube-proxy calls, with its libraries."""


def node_image(engine: Engine, release: Release) -> str:
    """Make the image of a version, unless docker has it.

    Returns:
        Its name.

    Raises:
        ClusterError: A part could not be built.
    """
    base = _base(release)
    builds = (kubernetes(release.kubernetes), kubeadm(release.kubernetes))
    parts = (base.tag, *(str(build.place) for build in builds), str(pause()), PLANE)
    name = f"local/kind-node:{release.kubernetes}-{images.key(*parts)}"
    if engine.has(name):
        return name
    if engine.program != "docker":
        raise ClusterError(f"kind makes images of nodes with docker alone: load {name}")
    with workspace("node") as temp:
        folder = Path(temp)
        server = folder / "server.tar.gz"
        _write_server(server, folder, *builds)
        made = f"{name}-as-kind-makes-it"
        engine.run(
            # kind does not remove what it unpacks.
            *("env", f"TMPDIR={folder}", "kind", "build", "node-image", "--type", "file"),
            *("--base-image", engine.load(base), "--image", made, server),
            programs=[kind().parent],
        )
        recipe = f"FROM {made}\nCOPY default-storage.yaml /kind/manifests/\n"
        context = folder / "context"
        context.mkdir()
        shutil.copy(FILES / "default-storage.yaml", context)
        (context / "Dockerfile").write_text(recipe)
        engine.build(context, tag=name)
    return name


def ready(version: str = DEFAULT) -> None:
    """Make the image of a version for a docker of our own; no other needs it beforehand."""
    if answering():
        return
    with locked("kind"), tempfile.TemporaryDirectory() as logs:
        engine = Engine.start(f"trio-npu-dra-{os.getpid()}-nodes", logs=Path(logs))
        try:
            node_image(engine, RELEASES[version])
        finally:
            engine.stop()


def _base(release: Release) -> Base:
    programs = (containerd(release.containerd), runc(), cni_plugins())
    made_of = [
        *(str(each.place if isinstance(each, Build) else each) for each in programs),
        *(hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(FILES.iterdir())),
    ]

    def fill(context: Path) -> None:
        shutil.copytree(module(*KIND) / "images/base/files", context / "files")
        for program in ("pods-network", "own-settings", "crictl"):
            shutil.copy(FILES / program, context / "files/usr/local/bin")
        shutil.copy(FILES / "before-kubelet.service", context / "files/etc/systemd/system")
        for file in containerd(release.containerd).ready().iterdir():
            shutil.copy(file, context / "files/usr/local/bin")
        (context / "files/usr/local/sbin").mkdir()
        shutil.copy(runc(), context / "files/usr/local/sbin")
        shutil.copytree(cni_plugins(), context / "files/opt/cni/bin")
        run("chmod", "-R", "u+w,go=rX", context / "files")
        for folder in ("usr/local/bin", "usr/local/sbin", "kind/bin", "opt/cni/bin"):
            run("chmod", "-R", "755", context / "files" / folder)
        (context / "services.sh").write_text(SERVICES)

    recipe = (
        f"# {' '.join(KIND)} {images.key(*made_of, SERVICES)}\n"
        "FROM PARENT\nCOPY files/ /\nCOPY services.sh /\n"
        "RUN sh -eu /services.sh && rm /services.sh\n"
        "ENV container=docker\nSTOPSIGNAL SIGRTMIN+3\n"
        'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]\n'
    )
    return Base(name="local/kind-base:1", recipe=recipe, fill=fill, parent=DEBIAN)


def _write_server(server: Path, folder: Path, plane: Build, adm: Build) -> None:
    """Write an archive like a release's: programs, and images in archives of docker."""
    program, kubeadm_program = plane.ready() / "kubernetes", adm.ready() / "kubeadm"
    layer, pausing = folder / "plane", folder / "pause"
    base = folder / "debian"
    images.lay_out(DEBIAN.ready(), base)
    layer.mkdir()
    run("chroot", base, "sh", "-euc", PLANE, "sh", "/plane")
    (base / "plane").rename(layer / "root")
    binaries = layer / "root/usr/local/bin"
    binaries.mkdir(parents=True)
    shutil.copy(program, binaries)
    shutil.copy(kubeadm_program, binaries / "kube-proxy")
    for part in PARTS:
        (binaries / part).symlink_to("kubernetes")
    pausing.mkdir()
    shutil.copy(pause(), pausing / "pause")
    version = f"v{plane.version}"
    search = {"Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin"]}
    archives = {
        "kube-apiserver": _image(layer / "root", _names(kubeadm_program, version), search),
        **dict.fromkeys(
            ("kube-controller-manager", "kube-scheduler", "kube-proxy"),
            _image(pausing, [_pause_name()], {"Entrypoint": ["/pause"]}),
        ),
    }
    with tarfile.open(server, "w:gz", compresslevel=1) as tar:
        place = "kubernetes/server/bin"
        for name in ("kubelet", "kubectl"):
            tar.add(program, f"{place}/{name}")
        tar.add(kubeadm_program, f"{place}/kubeadm")
        _add(tar, "kubernetes/version", version.encode())
        for name, content in archives.items():
            _add(tar, f"{place}/{name}.tar", content)


def _names(kubeadm_program: Path, version: str) -> list[str]:
    """The names under which kubeadm and kind look for images, but for that of `pause`."""
    listed = run(kubeadm_program, "config", "images", "list", "--kubernetes-version", version)
    sources = module(*KIND) / "pkg/build/nodeimage"
    text = "".join(file.read_text() for file in sources.glob("const_*.go"))
    return [name for name in listed.split() if "/pause:" not in name] + sorted(
        set(re.findall(r'Image = "(docker\.io/kindest/[^"]+)"', text))
    )


def _pause_name() -> str:
    text = (module(*KIND) / "images/base/files/etc/containerd/config.toml").read_text()
    (name,) = re.findall(r'sandbox_image\s*=\s*"([^"]+)"', text)
    return str(name)


def _image(root: Path, names: Sequence[str], config: Mapping[str, object]) -> bytes:
    """An image of one layer, as `docker save` writes one."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(root, ".")
    digest = f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"
    about = json.dumps(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        }
    ).encode()
    described = f"{hashlib.sha256(about).hexdigest()}.json"
    manifest = [{"Config": described, "RepoTags": list(names), "Layers": ["layer.tar"]}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        _add(tar, described, about)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        _add(tar, "repositories", b"{}")
        _add(tar, "layer.tar", layer.getvalue())
    return archive.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size = len(content)
    tar.addfile(about, io.BytesIO(content))


if __name__ == "__main__":
    ready()
