"""Where the API server is and who we are there: the pod's service account, or a kubeconfig file."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trio_npu_dra.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE_LIMIT = 60.0
"""Seconds for which a token file's content is trusted; the kubelet rotates it after 48 minutes."""


class Token:
    """A bearer token that follows its file.

    Args:
        path: The file, `None` for a fixed token.
        value: The fixed token.
        clock: Seconds, for tests.

    Raises:
        ConfigError: The file cannot be read or is empty.
    """

    def __init__(
        self, path: Path | None, value: str = "", *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._clock = clock
        self._value = _read(path, "token").decode().strip() if path else value
        self._read_at = clock()
        if not self._value:
            raise ConfigError(f"token file {path} is empty")

    def current(self) -> str:
        """The token, read again when it is older than `TOKEN_AGE_LIMIT`."""
        if self._path is not None and self._clock() - self._read_at > TOKEN_AGE_LIMIT:
            self.reread()
        return self._value

    def reread(self) -> bool:
        """Read the file now; the old token stays when that fails.

        Returns:
            Whether the token is another one than before.
        """
        if self._path is None:
            return False
        self._read_at = self._clock()
        try:
            value = self._path.read_text().strip()
        except OSError:
            return False
        changed = bool(value) and value != self._value
        self._value = value or self._value
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How to reach and to satisfy the API server.

    Attributes:
        source: Where this comes from, for messages.
        base_url: `https://host:port` with a possible path, no trailing slash.
        tls: Trusts the cluster's CA alone; `None` on a unix socket.
        unix_socket: The socket of `kubectl proxy --unix-socket`.
        token: Sent as bearer token.
    """

    source: str
    base_url: str
    tls: ssl.SSLContext | None = None
    unix_socket: Path | None = None
    token: Token | None = None


def load_credentials(kubeconfig: Path | None) -> Credentials:
    """Credentials from *kubeconfig*, or of the pod we run in.

    Raises:
        ConfigError: Something is missing or does not parse; the message names file and field.
    """
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig)
    return in_cluster(os.environ, SERVICE_ACCOUNT)


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
        tls=_tls(_read(folder / "ca.crt", "ca.crt"), where=str(folder / "ca.crt")),
        token=Token(folder / "token"),
    )


# --- kubeconfig ----------------------------------------------------------------------------------


class _Part(BaseModel):
    """Base of all parts: the file's names have dashes, unknown fields are other tools' business."""

    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name.replace("_", "-"))


def _decoded(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except binascii.Error as error:
        raise ValueError("is not base64") from error


Base64 = Annotated[bytes, BeforeValidator(_decoded)]


class _Cluster(_Part):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: Base64 | None = None
    insecure_skip_tls_verify: bool = False


class _User(_Part):
    token: str | None = None
    token_file: str | None = Field(None, alias="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: Base64 | None = None
    client_key: str | None = None
    client_key_data: Base64 | None = None
    exec: Any = None
    auth_provider: Any = None
    username: str | None = None


class _Context(_Part):
    cluster: str
    user: str = ""


class _NamedCluster(_Part):
    name: str
    cluster: _Cluster


class _NamedUser(_Part):
    name: str
    user: _User


class _NamedContext(_Part):
    name: str
    context: _Context


class _Kubeconfig(_Part):
    current_context: str = Field(min_length=1)
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] = ()


def from_kubeconfig(path: Path) -> Credentials:
    """Credentials of the current context of a kubeconfig file.

    Understands tokens, token files and client certificates; `server` is `https://...`, or
    `unix:///path` for the socket of `kubectl proxy --unix-socket`.

    Raises:
        ConfigError: The file does not parse, or needs something that we do not have.
    """
    try:
        config = _Kubeconfig.model_validate(yaml.safe_load(_read(path, "kubeconfig")))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        raise ConfigError(f"{path}: {field}: {first['msg']}") from error
    context = _named(path, "contexts", config.current_context, config.contexts).context
    cluster = _named(path, "clusters", context.cluster, config.clusters).cluster
    user = _named(path, "users", context.user, config.users or ()).user if context.user else _User()
    if cluster.server.startswith("unix://"):
        socket = Path(cluster.server.removeprefix("unix://"))
        return Credentials(source=str(path), base_url="http://localhost", unix_socket=socket)
    return _over_tls(path, cluster, user)


def _named(path: Path, section: str, name: str, entries: tuple[Any, ...]) -> Any:
    for entry in entries:
        if entry.name == name:
            return entry
    raise ConfigError(f"{path}: {section} has no entry named {name!r}")


def _over_tls(path: Path, cluster: _Cluster, user: _User) -> Credentials:
    if not cluster.server.startswith("https://"):
        raise ConfigError(
            f"{path}: cluster.server is {cluster.server!r}: only https:// and unix:// are spoken"
        )
    if cluster.insecure_skip_tls_verify:
        raise ConfigError(f"{path}: cluster.insecure-skip-tls-verify: TLS is always verified")
    for field in ("exec", "auth_provider", "username"):
        if getattr(user, field) is not None:
            raise ConfigError(
                f"{path}: user.{field.replace('_', '-')} is not supported: "
                "give a token, tokenFile or client certificate"
            )
    authority = _material(
        path, cluster.certificate_authority_data, cluster.certificate_authority, "ca"
    )
    if authority is None:
        raise ConfigError(f"{path}: cluster.certificate-authority(-data) is missing")
    tls = _tls(authority, where=f"{path}: cluster.certificate-authority")
    certificate = _material(path, user.client_certificate_data, user.client_certificate, "cert")
    key = _material(path, user.client_key_data, user.client_key, "key")
    if (certificate is None) != (key is None):
        raise ConfigError(f"{path}: user.client-certificate and user.client-key go together")
    if certificate is not None and key is not None:
        _present(tls, certificate, key, where=f"{path}: user.client-certificate")
    return Credentials(
        source=str(path),
        base_url=cluster.server.rstrip("/"),
        tls=tls,
        token=_token(path, user),
    )


def _token(path: Path, user: _User) -> Token | None:
    if user.token:
        return Token(None, user.token)
    if user.token_file:
        return Token(path.parent / user.token_file)
    return None


def _material(path: Path, data: bytes | None, file: str | None, what: str) -> bytes | None:
    """PEM from the file itself, or from a file it names relative to its own folder."""
    if data is not None:
        return data
    return _read(path.parent / file, what) if file else None


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror}") from error


def _tls(authority: bytes, *, where: str) -> ssl.SSLContext:
    """A context that trusts only *authority* (PEM).

    Built by hand: the default context loads the system's CAs (40 ms), and since Python 3.13 refuses
    CA certificates without an authority key identifier, which clusters do have.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{where} is not a PEM certificate: {error}") from error
    return context


def _present(context: ssl.SSLContext, certificate: bytes, key: bytes, *, where: str) -> None:
    """Use a client certificate; OpenSSL takes it only from a file, so it passes through one."""
    with tempfile.NamedTemporaryFile() as file:  # mode 0600
        file.write(certificate + b"\n" + key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as error:
            raise ConfigError(f"{where} and client-key do not fit: {error}") from error
