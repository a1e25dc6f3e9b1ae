"""Kubeconfig files: a context of them, and the fields that this client does not support."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

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
"""Fields that would change the server or our identity, and what to do instead."""
_FOR_PEOPLE: Final[Mapping[str, str]] = {
    "cluster.insecure-skip-tls-verify": "TLS is always verified: give certificate-authority",
    "cluster.tls-server-name": "the server's certificate must be for the host in server",
    "user.exec": IDENTITY,
}
"""The same of the agent alone: `kubectl npu` does as these say."""


class _Section(BaseModel):
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
    """users[].user; *exec* is a credential plugin, which is understood only if it is to be run."""

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
    """What a context names.

    Attributes:
        cluster: Its cluster.
        cluster_file: Where that is; paths in it are relative to the folder of this file.
        user: Its user; blank if the context has none.
        user_file: Where that is.
        namespace: The namespace of the context; `default` if it has none.
    """

    cluster: KubeCluster
    cluster_file: Path
    user: KubeUser
    user_file: Path
    namespace: str


def files_of_person(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The files that kubectl takes unless it is told: those of `KUBECONFIG`, or `~/.kube/config`.

    Of several in `KUBECONFIG` some may be missing. None at all is no error without `KUBECONFIG`.

    Raises:
        ConfigError: `KUBECONFIG` names no file that exists.
    """
    named = environment.get("KUBECONFIG", "")
    if not named:
        usual = Path("~/.kube/config").expanduser()
        return (usual,) if usual.exists() else ()
    found = tuple(
        path for path in map(Path, filter(None, named.split(os.pathsep))) if path.exists()
    )
    if not found:
        raise ConfigError(f"KUBECONFIG={named} names no file that exists")
    return found


def read_context(files: Sequence[Path], context: str = "") -> KubeContext:
    """A context of the files, which are read as if they were one.

    As in kubectl, the first file with an entry of a name has that entry, and the first with a
    current context has that.

    Args:
        files: One or more.
        context: The name of the context; the current one without it.

    Raises:
        ConfigError: A file cannot be read or does not parse, the context does not lead to a
            cluster, or needs what we do not support.
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
    cluster = named_cluster.cluster
    user_file, user = files[0], KubeUser()
    if chosen.user:
        users = [(path, one.users) for path, one in configs]
        user_file, named_user = _named(where, "users", chosen.user, users)
        user = named_user.user
    _refuse(cluster_file, "cluster", cluster, _REFUSED)
    _refuse(user_file, "user", user, _REFUSED)
    return KubeContext(
        cluster=cluster,
        cluster_file=cluster_file,
        user=user,
        user_file=user_file,
        namespace=chosen.namespace or "default",
    )


def refuse_for_agent(chosen: KubeContext) -> None:
    """Refuse what is done for people alone.

    Raises:
        ConfigError: The context needs it; the message has file and field.
    """
    _refuse(chosen.cluster_file, "cluster", chosen.cluster, _FOR_PEOPLE)
    _refuse(chosen.user_file, "user", chosen.user, _FOR_PEOPLE)


def _parsed(path: Path) -> _Kubeconfig:
    try:
        content = _loaded(path)
        return _Kubeconfig.model_validate({} if content is None else content)
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
