"""The cluster's own certificate authority and its certificates, by the openssl command."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.processes import run

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its private key, in PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Signs certificates into one folder."""

    folder: Path
    pair: Pair

    @classmethod
    def create(cls, folder: Path) -> Authority:
        """Make a new authority whose files lie in `folder`."""
        folder.mkdir(parents=True, mode=0o700)
        pair = Pair(certificate=folder / "ca.crt", key=folder / "ca.key")
        run(
            *("openssl", "req", "-x509", *CURVE, "-subj", "/CN=trio-npu-dra-test-ca"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", pair.key, "-out", pair.certificate),
        )
        return cls(folder=folder, pair=pair)

    def issue(
        self, name: str, *, user: str, group: str | None = None, hosts: tuple[str, ...] = ()
    ) -> Pair:
        """Sign a certificate; Kubernetes sees that user (CN) and group (O).

        `hosts` are addresses (`IP:127.0.0.1`) and names (`DNS:localhost`) of a server; without any
        the certificate is for a client.
        """
        pair = Pair(certificate=self.folder / f"{name}.crt", key=self.folder / f"{name}.key")
        subject = f"/O={group}/CN={user}" if group else f"/CN={user}"
        usage = "serverAuth,clientAuth" if hosts else "clientAuth"
        names = ("-addext", f"subjectAltName={','.join(hosts)}") if hosts else ()
        run(
            *("openssl", "req", "-x509", *CURVE, "-subj", subject),
            *("-CA", self.pair.certificate, "-CAkey", self.pair.key),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-addext", f"extendedKeyUsage={usage}", *names),
            *("-keyout", pair.key, "-out", pair.certificate),
        )
        return pair

    def kubeconfig(self, name: str, *, server: str, user: str, group: str | None = None) -> Path:
        """Write a kubeconfig with certificates and key inside."""
        pair = self.issue(name, user=user, group=group)
        context = {"cluster": "trio-npu-dra", "user": user}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "trio-npu-dra",
            "contexts": [{"name": "trio-npu-dra", "context": context}],
            "clusters": [
                {
                    "name": "trio-npu-dra",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": _encoded(self.pair.certificate),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": _encoded(pair.certificate),
                        "client-key-data": _encoded(pair.key),
                    },
                }
            ],
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
