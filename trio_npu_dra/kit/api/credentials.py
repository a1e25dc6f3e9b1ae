"""Address of the API server and the client's identity there: a service account, or a kubeconfig.

Nothing else counts: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` in the environment
change nothing, because a pod reaches its API server without a proxy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trio_npu_dra.kit.api.tls import Material, Tls, check_name
from trio_npu_dra.kit.base.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN = re.compile(r"[!-~]+")
"""For any other token the HTTP library refuses the header, with the token in its message."""


class BearerToken:
    """A bearer token that follows its file.

    Args:
        material: The file, which the kubelet replaces after 48 minutes, or the token.

    Raises:
        ConfigError: The file cannot be read, or has no token.
    """

    def __init__(self, material: Material) -> None:
        self._material = material
        self._mark = material.mark()
        self._value = self._read()

    def current(self) -> str:
        """The token; reads the file again after it was replaced."""
        if self._material.mark() != self._mark:
            self.reread()
        return self._value

    def reread(self) -> None:
        """Read the file now; the old token stays when there is none in it."""
        mark = self._material.mark()
        try:
            self._value = self._read()
        except ConfigError:
            return  # the mark stays too, so the next request reads the file again
        self._mark = mark

    def _read(self) -> str:
        value = self._material.read().decode(errors="replace").strip()
        if not _TOKEN.fullmatch(value):
            where = self._material.path or "its value"
            raise ConfigError(f"{self._material.field}: {where} is empty, or not one line of ASCII")
        return value


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach the API server and authenticate there.

    Attributes:
        source: Where these come from, for messages.
        base_url: `https://host:port` with a possible path, no trailing slash.
        tls: `None` on a unix socket.
        unix_socket: The socket of `kubectl proxy --unix-socket`.
        token: `None` if a certificate, or the proxy, has the identity.
    """

    source: str
    base_url: str
    tls: Tls | None = None
    unix_socket: Path | None = None
    token: BearerToken | None = None


def check_url(field: str, url: str) -> None:
    """Refuse a base URL whose host or port nobody can connect to.

    Raises:
        ConfigError: The message names the field.
    """
    try:
        parts = urlsplit(url)
        url.encode("ascii")
        _ = parts.port  # raises for one that does not exist
        check_name(parts.hostname or "")
    except ValueError as error:
        raise ConfigError(f"{field} is {url!r}: {error}") from error


def own_namespace(folder: Path = SERVICE_ACCOUNT) -> str:
    """The namespace of this process's pod; empty where its service account is not mounted."""
    try:
        return (folder / "namespace").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def in_cluster(environment: Mapping[str, str], folder: Path) -> Credentials:
    """Credentials of a pod's service account.

    Args:
        environment: Has KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
        folder: Has `token` and `ca.crt`.

    Raises:
        ConfigError: A variable or file is missing, or cannot be used.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: "
            "outside of a pod, give --kubeconfig"
        )
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    check_url("the API server of KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT", url)
    return Credentials(
        source=f"service account in {folder}",
        base_url=url,
        tls=Tls(Material(field="the service account's CA", path=folder / "ca.crt")),
        token=BearerToken(Material(field="the service account's token", path=folder / "token")),
    )


def load_credentials(path: Path | None) -> Credentials:
    """Credentials from a kubeconfig file, or of the pod in which this process runs.

    Raises:
        ConfigError: Something is missing or does not parse; the message names file and field.
    """
    if path is None:
        return in_cluster(os.environ, SERVICE_ACCOUNT)
    # Pods have none: PyYAML and its models are 1.0 MiB of 59, and 2 % of the imports.
    from trio_npu_dra.kit.api.kubeconfig import driver_credentials  # noqa: PLC0415

    return driver_credentials(path)
