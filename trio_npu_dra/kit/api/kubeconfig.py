"""A driver's kubeconfig: cluster and identity of its current context, and what it must not have."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import httpx
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from trio_npu_dra.kit.api.credentials import (
    BearerToken,
    Credentials,
    check_url,
)
from trio_npu_dra.kit.api.tls import ClientCertificate, Material, Tls
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.storage import translated

T = TypeVar("T")
_IDENTITY: Final = "give a token, tokenFile or client certificate"
_REFUSED: Final[Mapping[str, str]] = {
    "cluster.insecure-skip-tls-verify": "TLS is always verified: give certificate-authority",
    "cluster.proxy-url": "the API server must be reachable directly, or give server: unix://",
    "cluster.tls-server-name": "the server's certificate must be for the host in server",
    "user.as": "give the credentials of that user",
    "user.as-groups": "give the credentials of that user",
    "user.as-uid": "give the credentials of that user",
    "user.as-user-extra": "give the credentials of that user",
    "user.auth-provider": _IDENTITY,
    "user.exec": _IDENTITY,
    "user.password": _IDENTITY,
    "user.username": _IDENTITY,
}
"""Fields that would change the server or the identity, and what to do instead."""
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


class _Cluster(_Section):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: Base64 | None = None


class _User(_Section):
    token: str | None = None
    token_file: str | None = Field(None, alias="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: Base64 | None = None
    client_key: str | None = None
    client_key_data: Base64 | None = None


class _Context(_Section):
    cluster: str
    user: str = ""


class _NamedCluster(_Section):
    name: str
    cluster: _Cluster


class _NamedUser(_Section):
    name: str
    user: _User


class _NamedContext(_Section):
    name: str
    context: _Context


N = TypeVar("N", _NamedCluster, _NamedUser, _NamedContext)


class _Kubeconfig(_Section):
    current_context: str = ""
    clusters: _Entries[_NamedCluster] = ()
    users: _Entries[_NamedUser] = ()
    contexts: _Entries[_NamedContext] = ()


def driver_credentials(path: Path) -> Credentials:
    """Credentials of the current context of a kubeconfig file; paths in it start at its folder.

    It may have tokens, token files and client certificates; `server` is `https://...`, or
    `unix:///path` for the socket of `kubectl proxy --unix-socket`, which has its own identity.

    Raises:
        ConfigError: The file does not parse, or needs something that a driver does not support.
    """
    config = _parsed(path)
    if not config.current_context:
        raise ConfigError(f"{path}: current-context is missing")
    context = _named(path, "contexts", config.current_context, config.contexts).context
    cluster = _named(path, "clusters", context.cluster, config.clusters).cluster
    user = _named(path, "users", context.user, config.users).user if context.user else _User()
    _refuse(path, "cluster", cluster)
    _refuse(path, "user", user)
    token, certificate = _token(path, user), _client_certificate(path, user)
    if cluster.server.startswith("unix://"):
        socket = Path(cluster.server.removeprefix("unix://"))
        return Credentials(source=str(path), base_url="http://localhost", unix_socket=socket)
    url = _base_url(path, cluster.server)
    authority = _material(
        path,
        "cluster.certificate-authority",
        cluster.certificate_authority_data,
        cluster.certificate_authority,
    )
    if authority is None:
        raise ConfigError(f"{path}: cluster.certificate-authority(-data) is missing")
    return Credentials(source=str(path), base_url=url, tls=Tls(authority, certificate), token=token)


def _token(path: Path, user: _User) -> BearerToken | None:
    if user.token_file:  # wins over `token`, as in kubectl
        file = path.parent / user.token_file
        return BearerToken(Material(field=f"{path}: user.tokenFile", path=file))
    if user.token:
        return BearerToken(Material(field=f"{path}: user.token", data=user.token.encode()))
    return None


def _client_certificate(path: Path, user: _User) -> ClientCertificate | None:
    certificate = _material(
        path, "user.client-certificate", user.client_certificate_data, user.client_certificate
    )
    key = _material(path, "user.client-key", user.client_key_data, user.client_key)
    if certificate is not None and key is not None:
        return ClientCertificate(certificate=certificate, key=key)
    if certificate is not None or key is not None:
        raise ConfigError(f"{path}: user.client-certificate and user.client-key go together")
    return None


def _base_url(path: Path, server: str) -> str:
    """A server's address as client-go takes it: without user, query and trailing slashes.

    Escapes stay, and an international host name is as DNS has it.
    """
    try:
        url = httpx.URL(server)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme != "https" or not url.raw_host:
        raise ConfigError(
            f"{path}: cluster.server is {server!r}: only https:// and unix:// are spoken"
        )
    prefix = url.raw_path.partition(b"?")[0].rstrip(b"/")
    base_url = f"https://{(url.netloc + prefix).decode('ascii')}"
    check_url(f"{path}: cluster.server", base_url)
    return base_url


def _material(path: Path, field: str, data: bytes | None, file: str | None) -> Material | None:
    """A value from the kubeconfig itself, or from a file named relative to its folder."""
    if data:
        return Material(field=f"{path}: {field}-data", data=data)
    return Material(field=f"{path}: {field}", path=path.parent / file) if file else None


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


def _named(path: Path, section: str, name: str, entries: Iterable[N]) -> N:
    for entry in entries:
        if entry.name == name:
            return entry
    raise ConfigError(f"{path}: {section} has no entry named {name!r}")


def _refuse(path: Path, section: str, part: _Section) -> None:
    known = type(part).model_fields
    for name, value in part:
        field = f"{section}.{known[name].alias if name in known else name}"
        if value and field in _REFUSED:
            raise ConfigError(f"{path}: {field} is not supported: {_REFUSED[field]}")
