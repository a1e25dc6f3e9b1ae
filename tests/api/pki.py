"""Certificate authorities, certificates and kubeconfig files, by the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
SERVER = "subjectAltName=IP:127.0.0.1"
CLIENT = "extendedKeyUsage=clientAuth"


def openssl(*arguments: str, folder: Path) -> None:
    """Run openssl in *folder*."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_authority(folder: Path, name: str) -> None:
    """A CA: `<name>.crt` and `<name>.key`."""
    openssl(
        "req", "-x509", *CURVE, "-keyout", f"{name}.key", "-out", f"{name}.crt",
        "-subj", f"/CN={name}", "-days", "2", folder=folder,
    )  # fmt: skip


def make_certificate(folder: Path, name: str, extension: str, *, authority: str = "ca") -> None:
    """A certificate of *authority*: `<name>.crt` and `<name>.key`."""
    openssl(
        "req", *CURVE, "-keyout", f"{name}.key", "-out", f"{name}.csr",
        "-subj", f"/CN={name}", folder=folder,
    )  # fmt: skip
    (folder / "extensions").write_text(extension)
    openssl(
        "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt", "-CAkey",
        f"{authority}.key", "-CAcreateserial", "-out", f"{name}.crt", "-days", "2",
        "-extfile", "extensions", folder=folder,
    )  # fmt: skip


def make_all(folder: Path) -> None:
    """Make server and client certificates of `ca`, and those of a `stranger`."""
    make_authority(folder, "ca")
    make_authority(folder, "stranger")
    make_certificate(folder, "server", SERVER)
    make_certificate(folder, "client", CLIENT)
    make_certificate(folder, "strange-server", SERVER, authority="stranger")
    make_certificate(folder, "strange-client", CLIENT, authority="stranger")


def kubeconfig(
    folder: Path, cluster: dict[str, object], user: dict[str, object] | None = None
) -> Path:
    """A kubeconfig file with one context."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path
