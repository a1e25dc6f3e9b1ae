"""Kubeconfig files: a context, its credentials, and the unsupported fields."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import httpx
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from trio_npu_dra.kit.api.credentials import BearerToken, Credentials, Login, check_url
from trio_npu_dra.kit.api.material import Material
from trio_npu_dra.kit.api.tls import ClientCertificate, Tls, Trust, check_name
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.storage import translated

T = TypeVar("T")
IDENTITY: Final = "give a token, tokenFile or client certificate"
_REFUSED: Final[Mapping[str, str]] = {
    "cluster.proxy-url": "the API server must be reachable directly, or give server: unix://",
    "user.auth-provider": IDENTITY,
    "user.username": IDENTITY,
    "user.password": IDENTITY,
    "user.as": "give the credentials of that user",
    "user.as-uid": "give the credentials of that user",
    "user.as-groups": "give the credentials of that user",
    "user.as-user-extra": "give the credentials of that user",
}
"""Fields that would change the server or the identity, and what to do instead."""
_FOR_PEOPLE: Final[Mapping[str, str]] = {
    "cluster.insecure-skip-tls-verify": "TLS is always verified: give certificate-authority",
    "cluster.tls-server-name": "the server's certificate must be for the host in server",
    "user.exec": IDENTITY,
}
"""Fields that a person's kubeconfig may have, and a driver's may not."""
_UNSENDABLE: Final = re.compile("[\0\ud800-\udfff]")
"""NUL and half a character: YAML has them, no file name, host or token can."""


class _Section(BaseModel):
    """Base of all sections: the file's names have dashes, and unknown fields are kept."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        extra="allow",
        defer_build=True,  # the whole file's class has the schemas of its sections
    )

    @field_validator("*")
    @classmethod
    def _is_sendable(cls, value: Any) -> Any:
        if isinstance(value, str) and _UNSENDABLE.search(value):
            raise ValueError("has a NUL or half a character in it")
        return value


def _decoded(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except binascii.Error as error:
        raise ValueError("is not base64") from error


Base64 = Annotated[bytes, BeforeValidator(_decoded)]
_Entries = Annotated[tuple[T, ...], BeforeValidator(lambda value: () if value is None else value)]
"""A list; kubectl writes null for an empty one."""


class _Extension(_Section):
    name: str
    extension: Any = None


class KubeCluster(_Section):
    """clusters[].cluster; *extensions* are what other programs keep there."""

    server: str
    certificate_authority: str | None = None
    certificate_authority_data: Base64 | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    extensions: _Entries[_Extension] = ()


class KubeUser(_Section):
    """users[].user; *exec*, a credential plugin, is parsed by the code that runs it."""

    token: str | None = None
    token_file: str | None = Field(None, alias="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: Base64 | None = None
    client_key: str | None = None
    client_key_data: Base64 | None = None
    exec: dict[str, Any] | None = None


class _Context(_Section):
    cluster: str
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Section):
    name: str
    cluster: KubeCluster


class _NamedUser(_Section):
    name: str
    user: KubeUser


class _NamedContext(_Section):
    name: str
    context: _Context


N = TypeVar("N", _NamedCluster, _NamedUser, _NamedContext)


class _Kubeconfig(_Section):
    current_context: str = ""
    clusters: _Entries[_NamedCluster] = ()
    users: _Entries[_NamedUser] = ()
    contexts: _Entries[_NamedContext] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeContext:
    """The cluster and the user that a context names.

    Attributes:
        cluster_file: The file with the cluster; paths in it are relative to this file's folder.
        user: Blank if the context has none.
        user_file: The file with the user.
        namespace: `default` if the context has none.
    """

    cluster: KubeCluster
    cluster_file: Path
    user: KubeUser
    user_file: Path
    namespace: str

    @property
    def unix_socket(self) -> Path | None:
        """The socket of `kubectl proxy --unix-socket`, if that is the server."""
        server = self.cluster.server
        return Path(server.removeprefix("unix://")) if server.startswith("unix://") else None

    @property
    def authority(self) -> Material | None:
        """The cluster's CA."""
        data, file = self.cluster.certificate_authority_data, self.cluster.certificate_authority
        return _material(self.cluster_file, "cluster.certificate-authority", data, file)

    def token(self) -> BearerToken | None:
        """The user's token.

        Raises:
            ConfigError: Its file cannot be read, or it is no token.
        """
        path, user = self.user_file, self.user
        if user.token_file:  # wins over `token`, as in kubectl
            file = path.parent / user.token_file
            return BearerToken(Material(field=f"{path}: user.tokenFile", path=file))
        if user.token:
            return BearerToken(Material(field=f"{path}: user.token", data=user.token.encode()))
        return None

    def client_certificate(self) -> ClientCertificate | None:
        """The user's client certificate.

        Raises:
            ConfigError: It has no key, or there is a key alone.
        """
        path, user = self.user_file, self.user
        certificate = _material(
            path, "user.client-certificate", user.client_certificate_data, user.client_certificate
        )
        key = _material(path, "user.client-key", user.client_key_data, user.client_key)
        if certificate is not None and key is not None:
            return ClientCertificate(certificate=certificate, key=key)
        if certificate is not None or key is not None:
            raise ConfigError(f"{path}: user.client-certificate and user.client-key go together")
        return None

    def credentials(
        self,
        authority: Material | Trust | None,
        token: BearerToken | None,
        certificate: ClientCertificate | None,
        login: Login | None = None,
    ) -> Credentials:
        """Credentials for the cluster; a unix socket needs no CA and no identity.

        Raises:
            ConfigError: The cluster's address or CA is missing, or cannot be used.
        """
        path, server = self.cluster_file, self.cluster.server
        if self.unix_socket:
            return Credentials(
                source=str(path), base_url="http://localhost", unix_socket=self.unix_socket
            )
        try:
            url = httpx.URL(server)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme != "https" or not url.raw_host:
            raise ConfigError(
                f"{path}: cluster.server is {server!r}: only https:// and unix:// are spoken"
            )
        # As client-go takes it: without user, query and trailing slashes; escapes stay, and an
        # international host name is as DNS has it.
        prefix = url.raw_path.partition(b"?")[0].rstrip(b"/")
        base_url = f"https://{(url.netloc + prefix).decode('ascii')}"
        check_url(f"{path}: cluster.server", base_url)
        if authority is None:
            raise ConfigError(f"{path}: cluster.certificate-authority(-data) is missing")
        if name := self.cluster.tls_server_name or "":
            try:
                check_name(name)
            except ValueError as error:
                raise ConfigError(
                    f"{path}: cluster.tls-server-name is {name!r}: no host name"
                ) from error
        return Credentials(
            source=str(path),
            base_url=base_url,
            server_name=name,
            tls=Tls(authority, certificate),
            token=token,
            login=login,
        )


def _material(path: Path, field: str, data: bytes | None, file: str | None) -> Material | None:
    """A value from the kubeconfig itself, or from a file named relative to its folder."""
    if data:
        return Material(field=f"{path}: {field}-data", data=data)
    return Material(field=f"{path}: {field}", path=path.parent / file) if file else None


def driver_credentials(path: Path) -> Credentials:
    """Credentials of the current context of a kubeconfig file, without the fields for people.

    It may have tokens, token files and client certificates; `server` is `https://...`, or
    `unix:///path` for the socket of `kubectl proxy --unix-socket`, which has its own identity.

    Raises:
        ConfigError: The file does not parse, or needs something that a driver does not support.
    """
    context = read_context((path,))
    _refuse(path, "cluster", context.cluster, _FOR_PEOPLE)
    _refuse(path, "user", context.user, _FOR_PEOPLE)
    return context.credentials(context.authority, context.token(), context.client_certificate())


def read_context(files: Sequence[Path], context: str = "") -> KubeContext:
    """A context of one or more files, which are read as if they were one.

    As in kubectl, the first file with an entry of a name has that entry, and the first with a
    current context has that.

    Args:
        files: One or more.
        context: The name of the context; the current one without it.

    Raises:
        ConfigError: A file cannot be read or does not parse, the context does not lead to a
            cluster, or needs something that no command supports.
    """
    where = ", ".join(map(str, files))
    configs = [(path, _parsed(path)) for path in files]
    name = context or next((one.current_context for _, one in configs if one.current_context), "")
    if not name:
        raise ConfigError(f"{where}: current-context is missing")
    contexts = [(path, one.contexts) for path, one in configs]
    chosen = _named(where, "contexts", name, contexts)[1].context
    clusters = [(path, one.clusters) for path, one in configs]
    cluster_file, named_cluster = _named(where, "clusters", chosen.cluster, clusters)
    user_file, user = files[0], KubeUser()
    if chosen.user:
        users = [(path, one.users) for path, one in configs]
        user_file, named_user = _named(where, "users", chosen.user, users)
        user = named_user.user
    _refuse(cluster_file, "cluster", named_cluster.cluster, _REFUSED)
    _refuse(user_file, "user", user, _REFUSED)
    return KubeContext(
        cluster=named_cluster.cluster,
        cluster_file=cluster_file,
        user=user,
        user_file=user_file,
        namespace=chosen.namespace or "default",
    )


def _parsed(path: Path) -> _Kubeconfig:
    with translated(f"read kubeconfig {path}", ConfigError):
        text = path.read_bytes()
    try:
        content = yaml.safe_load(text)
    except Exception as error:  # PyYAML raises half a dozen other types for such as `!!bool ""`
        words = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{path} is not YAML: {words}") from error
    try:
        return _Kubeconfig.model_validate({} if content is None else content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(step) for step in first["loc"])
        raise ConfigError(f"{path}: {field}: {first['msg']}") from error


def _named(
    where: str, section: str, name: str, entries: Iterable[tuple[Path, tuple[N, ...]]]
) -> tuple[Path, N]:
    """The first entry of a name, and its file."""
    for path, of_file in entries:
        for entry in of_file:
            if entry.name == name:
                return path, entry
    raise ConfigError(f"{where}: {section} has no entry named {name!r}")


def _refuse(path: Path, section: str, part: _Section, refused: Mapping[str, str]) -> None:
    known = type(part).model_fields
    for name, value in part:
        field = f"{section}.{known[name].alias if name in known else name}"
        if value and field in refused:
            raise ConfigError(f"{path}: {field} is not supported: {refused[field]}")
