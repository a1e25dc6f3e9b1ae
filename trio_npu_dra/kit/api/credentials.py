"""Address of the API server and our identity there, from the service account or a kubeconfig file.

Nothing else counts: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` in the environment
change nothing. A pod reaches its API server without a proxy. `KUBECONFIG` counts for people alone
(`kubeconfig.files_of_person`). For them alone credential plugins are run, and others than the
cluster's CA are trusted where the kubeconfig says so or names no CA (`login.login`).
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import httpx

from trio_npu_dra.kit.api.material import Material
from trio_npu_dra.kit.api.tls import ClientCertificate, Tls, Trust
from trio_npu_dra.kit.base.errors import ConfigError

if TYPE_CHECKING:
    from trio_npu_dra.kit.api.kubeconfig import KubeContext

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
        self._value = _token(material)

    def current(self) -> str:
        """The token, read again when its file was replaced."""
        if self._material.mark() != self._mark:
            self.reread()
        return self._value

    def reread(self) -> None:
        """Read the file now; the old token stays when there is none in it."""
        mark = self._material.mark()
        try:
            self._value = _token(self._material)
        except ConfigError:
            return  # the mark stays too, so the next request reads the file again
        self._mark = mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How to reach the API server and authenticate there.

    Attributes:
        source: Where these come from, for messages.
        base_url: `https://host:port` with a possible path, no trailing slash.
        server_name: The name that the server's certificate is for; that of the host if empty.
        tls: Whom to trust; `None` on a unix socket.
        unix_socket: The socket of `kubectl proxy --unix-socket`.
        token: Sent as bearer token.
        login: Gives other credentials once these end.
    """

    source: str
    base_url: str
    server_name: str = ""
    tls: Tls | None = None
    unix_socket: Path | None = None
    token: BearerToken | None = None
    login: Login | None = None


class Login(Protocol):
    """What gives credentials that end."""

    async def current(self, refused: Credentials | None = None) -> Credentials:
        """Credentials that have not ended.

        Args:
            refused: Credentials that the API server does not take (any more).

        Raises:
            ConfigError: There are none.
        """
        ...


def load_credentials(path: Path | None) -> Credentials:
    """Credentials from a kubeconfig file, or of the pod we run in.

    Raises:
        ConfigError: Something is missing or does not parse; the message names file and field.
    """
    if path is not None:
        return from_kubeconfig(path)
    return in_cluster(os.environ, SERVICE_ACCOUNT)


def own_namespace(folder: Path | None = None) -> str:
    """The namespace of the pod that we run in; empty where its service account is not mounted.

    Args:
        folder: That of the service account.
    """
    try:
        return ((folder or SERVICE_ACCOUNT) / "namespace").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def in_cluster(environment: Mapping[str, str], folder: Path) -> Credentials:
    """Credentials of a pod's service account.

    Args:
        environment: Has KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
        folder: Has `token` and `ca.crt`.

    Raises:
        ConfigError: A variable or file is missing.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: "
            "outside of a pod, give --kubeconfig"
        )
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Credentials(
        source=f"service account in {folder}",
        base_url=f"https://{netloc}",
        tls=Tls(Material(field="the service account's CA", path=folder / "ca.crt")),
        token=BearerToken(Material(field="the service account's token", path=folder / "token")),
    )


def from_kubeconfig(path: Path) -> Credentials:
    """Credentials of the current context of a kubeconfig file.

    It may have tokens, token files and client certificates; `server` is `https://...`, or
    `unix:///path` for the socket of `kubectl proxy --unix-socket`, which has its own identity.

    Raises:
        ConfigError: The file does not parse, or needs something that we do not support.
    """
    from trio_npu_dra.kit.api import kubeconfig  # noqa: PLC0415 - pods have none, and need no YAML

    chosen = kubeconfig.read_context((path,))
    kubeconfig.refuse_for_agent(chosen)
    return credentials_of(
        chosen, authority_of(chosen), token_of(chosen), client_certificate_of(chosen)
    )


def credentials_of(
    chosen: KubeContext,
    authority: Material | Trust | None,
    token: BearerToken | None,
    certificate: ClientCertificate | None,
    login: Login | None = None,
) -> Credentials:
    """Credentials for the chosen cluster.

    Args:
        chosen: Cluster and user.
        authority: Who says that the server is the cluster's; on a unix socket that is not asked.
        token: The user's token.
        certificate: The user's client certificate.
        login: Gives other credentials once these end.

    Raises:
        ConfigError: The cluster's address or CA is missing, or cannot be used.
    """
    path, cluster = chosen.cluster_file, chosen.cluster
    if socket := unix_socket_of(chosen):
        return Credentials(source=str(path), base_url="http://localhost", unix_socket=socket)
    if not _is_https(cluster.server):
        raise ConfigError(
            f"{path}: cluster.server is {cluster.server!r}: only https:// and unix:// are spoken"
        )
    if authority is None:
        raise ConfigError(f"{path}: cluster.certificate-authority(-data) is missing")
    return Credentials(
        source=str(path),
        base_url=cluster.server.rstrip("/"),
        server_name=_server_name(chosen),
        tls=Tls(authority, certificate),
        token=token,
        login=login,
    )


def unix_socket_of(chosen: KubeContext) -> Path | None:
    """The socket of `kubectl proxy --unix-socket`, if that is the server."""
    server = chosen.cluster.server
    return Path(server.removeprefix("unix://")) if server.startswith("unix://") else None


def authority_of(chosen: KubeContext) -> Material | None:
    """The cluster's CA."""
    return _material(
        chosen.cluster_file,
        "cluster.certificate-authority",
        chosen.cluster.certificate_authority_data,
        chosen.cluster.certificate_authority,
    )


def token_of(chosen: KubeContext) -> BearerToken | None:
    """The user's token.

    Raises:
        ConfigError: Its file cannot be read, or it is no token.
    """
    path, user = chosen.user_file, chosen.user
    if user.token_file:  # wins over `token`, as in kubectl
        return BearerToken(
            Material(field=f"{path}: user.tokenFile", path=path.parent / user.token_file)
        )
    if user.token:
        return BearerToken(Material(field=f"{path}: user.token", data=user.token.encode()))
    return None


def client_certificate_of(chosen: KubeContext) -> ClientCertificate | None:
    """The user's client certificate.

    Raises:
        ConfigError: It has no key, or there is a key alone.
    """
    path, user = chosen.user_file, chosen.user
    certificate = _material(
        path, "user.client-certificate", user.client_certificate_data, user.client_certificate
    )
    key = _material(path, "user.client-key", user.client_key_data, user.client_key)
    if certificate is not None and key is not None:
        return ClientCertificate(certificate=certificate, key=key)
    if certificate is not None or key is not None:
        raise ConfigError(f"{path}: user.client-certificate and user.client-key go together")
    return None


def _material(path: Path, field: str, data: bytes | None, file: str | None) -> Material | None:
    """A value from the kubeconfig itself, or from a file named relative to its folder."""
    if data:
        return Material(field=f"{path}: {field}-data", data=data)
    return Material(field=f"{path}: {field}", path=path.parent / file) if file else None


def _server_name(chosen: KubeContext) -> str:
    """The name in the server's certificate, if Python can ask for it: it refuses some names."""
    if not (name := chosen.cluster.tls_server_name or ""):
        return ""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
    except (ValueError, ssl.SSLError) as error:
        raise ConfigError(
            f"{chosen.cluster_file}: cluster.tls-server-name is {name!r}: no host name"
        ) from error
    return name


def _is_https(server: str) -> bool:
    try:
        url = httpx.URL(server)
    except httpx.InvalidURL:
        return False
    return url.scheme == "https" and bool(url.host)


def _token(material: Material) -> str:
    value = material.read().decode(errors="replace").strip()
    if not _TOKEN.fullmatch(value):
        raise ConfigError(
            f"{material.field}: {material.path or 'its value'} is empty, or not one line of ASCII"
        )
    return value
