"""The kubeconfig file: its current context, and the fields that this client does not support."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from trio_npu_dra.errors import ConfigError
from trio_npu_dra.storage import translated

_IDENTITY: Final = "give a token, tokenFile or client certificate"
_REFUSED: Final[Mapping[str, str]] = {
    "cluster.insecure-skip-tls-verify": "TLS is always verified: give certificate-authority",
    "cluster.proxy-url": "the API server must be reachable directly, or give server: unix://",
    "cluster.tls-server-name": "the server's certificate must be for the host in server",
    "user.exec": _IDENTITY,
    "user.auth-provider": _IDENTITY,
    "user.username": _IDENTITY,
    "user.password": _IDENTITY,
    "user.as": "give the credentials of that user",
    "user.as-uid": "give the credentials of that user",
    "user.as-groups": "give the credentials of that user",
    "user.as-user-extra": "give the credentials of that user",
}
"""Fields that would change the server or our identity, and what to do instead."""


class _Part(BaseModel):
    """Base of all parts: the file's names have dashes, and fields of other tools are ignored."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        extra="allow",
        defer_build=True,  # the whole file's class has the schemas of its parts
    )

    @field_validator("*")
    @classmethod
    def _is_sendable(cls, value: Any) -> Any:
        """Refuse NUL and half a character: YAML has them, no file name, host or token can."""
        if isinstance(value, str) and ("\0" in value or not _is_utf8(value)):
            raise ValueError("has a NUL or half a character in it")
        return value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decoded(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except binascii.Error as error:
        raise ValueError("is not base64") from error


Base64 = Annotated[bytes, BeforeValidator(_decoded)]


class Cluster(_Part):
    """clusters[].cluster."""

    server: str
    certificate_authority: str | None = None
    certificate_authority_data: Base64 | None = None


class User(_Part):
    """users[].user."""

    token: str | None = None
    token_file: str | None = Field(None, alias="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: Base64 | None = None
    client_key: str | None = None
    client_key_data: Base64 | None = None


class _Context(_Part):
    cluster: str
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Part):
    name: str
    cluster: Cluster


class _NamedUser(_Part):
    name: str
    user: User


class _NamedContext(_Part):
    name: str
    context: _Context


class _Kubeconfig(_Part):
    current_context: str = Field(min_length=1)
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] = ()


def current_context(path: Path) -> tuple[Cluster, User]:
    """Cluster and user of the current context.

    Raises:
        ConfigError: The file cannot be read, does not parse, or needs what we do not support.
    """
    config = _parsed(path)
    context = _named(path, "contexts", config.current_context, config.contexts).context
    cluster: Cluster = _named(path, "clusters", context.cluster, config.clusters).cluster
    user = User()
    if context.user:
        user = _named(path, "users", context.user, config.users or ()).user
    _refuse(path, "cluster", cluster)
    _refuse(path, "user", user)
    return cluster, user


def current_namespace(path: Path) -> str:
    """The namespace of the current context; `default` if it has none.

    Raises:
        ConfigError: The file cannot be read, or does not parse.
    """
    config = _parsed(path)
    context = _named(path, "contexts", config.current_context, config.contexts).context
    return str(context.namespace or "default")


def _parsed(path: Path) -> _Kubeconfig:
    try:
        return _Kubeconfig.model_validate(_loaded(path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(step) for step in first["loc"])
        raise ConfigError(f"{path}: {field}: {first['msg']}") from error


def _loaded(path: Path) -> Any:
    with translated(f"read kubeconfig {path}", ConfigError):
        content = path.read_bytes()
    try:
        return yaml.safe_load(content)
    except Exception as error:  # PyYAML raises half a dozen other types for such as `!!bool ""`
        words = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{path} is not YAML: {words}") from error


def _named(path: Path, section: str, name: str, entries: tuple[Any, ...]) -> Any:
    for entry in entries:
        if entry.name == name:
            return entry
    raise ConfigError(f"{path}: {section} has no entry named {name!r}")


def _refuse(path: Path, section: str, part: _Part) -> None:
    for name, value in (part.model_extra or {}).items():
        field = f"{section}.{name}"
        if value and field in _REFUSED:
            raise ConfigError(f"{path}: {field} is not supported: {_REFUSED[field]}")
