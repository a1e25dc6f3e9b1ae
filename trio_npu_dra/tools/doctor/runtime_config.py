"""The configuration of container runtimes, as far as it decides what becomes of NPUs; pure.

containerd calls its CRI plugin by three names, by the version of the file: `cri` (1),
`io.containerd.grpc.v1.cri` (2: containerd 1.3 and later) and `io.containerd.cri.v1.runtime`
(3: containerd 2.0). 2.x reads files of all versions. CDI is on since 2.0 (`enable_cdi`), off in all
of 1.7, and not there before. CRI-O has it since 1.23, always on.

Huawei's installer adds a runtime `ascend` whose binary is `ascend-docker-runtime`, and makes it the
default (MindCluster, `ascend-docker-runtime/install/process`); earlier guides had people replace
the binary of `runc`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

CONTAINERD: Final = "containerd"
CRIO: Final = "CRI-O"
DOCKER: Final = "Docker"

USUAL_CDI_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")

_CRI: Final = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_LINUX: Final = "io.containerd.runtime.v1.linux"
"""The shim of containerd 1.x before `runc.v2`, which has a binary of its own for all runtimes."""


class UnreadableConfig(ValueError):
    """The configuration is not TOML, or JSON, of the form that the runtime has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """The settings of a runtime.

    Attributes:
        engine: Which runtime it is.
        file: Its file; empty if there is none, so that all is as it comes.
        version: The version of the file, of containerd's.
        cdi: Whether CDI is on; None if the file does not say.
        cdi_folders: Where it looks for CDI specs.
        default: The name of the default runtime.
        ascend: Names of the runtimes that are the Ascend runtime.
        serves_pods: Whether the kubelet can use it: a containerd for Docker alone has no CRI.
    """

    engine: str
    file: str
    version: int = 2
    cdi: bool | None = None
    cdi_folders: tuple[str, ...] = USUAL_CDI_FOLDERS
    default: str = "runc"
    ascend: tuple[str, ...] = ()
    serves_pods: bool = True

    @property
    def is_ascend_default(self) -> bool:
        """Whether each container is started by the Ascend runtime that asks for no other."""
        return self.default in self.ascend

    @property
    def section(self) -> str:
        """The section of containerd's file with the CRI plugin's settings."""
        return _CRI[min(self.version, len(_CRI)) - 1]


def toml(content: bytes) -> dict[str, Any]:
    """One file.

    Raises:
        UnreadableConfig: It is not TOML.
    """
    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # of both: wrong bytes and wrong TOML
        raise UnreadableConfig(str(error)) from None


def containerd(file: str, documents: Iterable[Mapping[str, Any]]) -> RuntimeConfig:
    """The configuration of containerd: its file, and the documents in the order in which they win.

    Raises:
        UnreadableConfig: A setting is of the wrong type.
    """
    plugins: dict[str, Any] = {}
    disabled: set[str] = set()
    version = 0
    for document in documents:
        version = version or _typed(document, "version", int, 1)
        disabled.update(_typed(document, "disabled_plugins", list, []))
        found = _table(document, "plugins")
        for name in _CRI:  # a document of an older version has the settings under another name
            plugins = _merged(plugins, {"cri": _table(found, name), _LINUX: _table(found, _LINUX)})
    cri = _table(plugins, "cri")
    runtimes = _table(_table(cri, CONTAINERD), "runtimes")
    usual = _typed(_table(plugins, _LINUX), "runtime", str, "")
    binaries = {name: _binary(_table(runtimes, name), usual) for name in runtimes}
    return RuntimeConfig(
        engine=CONTAINERD,
        file=file,
        version=version,
        cdi=_typed(cri, "enable_cdi", bool, None),
        cdi_folders=tuple(_typed(cri, "cdi_spec_dirs", list, list(USUAL_CDI_FOLDERS))),
        default=_typed(_table(cri, CONTAINERD), "default_runtime_name", str, "") or "runc",
        ascend=tuple(_ascend(binaries)),
        serves_pods=disabled.isdisjoint(_CRI),
    )


def _binary(runtime: Mapping[str, Any], usual: str) -> str:
    options = _table(runtime, "options")
    named = _typed(options, "BinaryName", str, "") or _typed(runtime, "runtime_engine", str, "")
    return named or (usual if runtime.get("runtime_type") == _LINUX else "")


def crio(file: str, documents: Iterable[Mapping[str, Any]]) -> RuntimeConfig:
    """CRI-O's configuration; its drop-ins win in the order of their names.

    Raises:
        UnreadableConfig: A setting is of the wrong type.
    """
    whole: dict[str, Any] = {}
    for document in documents:
        whole = _merged(whole, document)
    runtime = _table(_table(whole, "crio"), "runtime")
    runtimes = _table(runtime, "runtimes")
    binaries = {name: _typed(_table(runtimes, name), "runtime_path", str, "") for name in runtimes}
    return RuntimeConfig(
        engine=CRIO,
        file=file,
        cdi=True,
        cdi_folders=tuple(_typed(runtime, "cdi_spec_dirs", list, list(USUAL_CDI_FOLDERS))),
        default=_typed(runtime, "default_runtime", str, "") or "runc",
        ascend=tuple(_ascend(binaries)),
    )


def docker(file: str, content: bytes) -> RuntimeConfig:
    """Docker's `daemon.json`; its containers are not the kubelet's.

    Raises:
        UnreadableConfig: It is not JSON, or a setting is of the wrong type.
    """
    try:
        whole = json.loads(content)
    except ValueError as error:
        raise UnreadableConfig(str(error)) from None
    if not isinstance(whole, dict):
        raise UnreadableConfig("it is no JSON object")
    runtimes = _table(whole, "runtimes")
    binaries = {name: _typed(_table(runtimes, name), "path", str, "") for name in runtimes}
    return RuntimeConfig(
        engine=DOCKER,
        file=file,
        default=_typed(whole, "default-runtime", str, "") or "runc",
        ascend=tuple(_ascend(binaries)),
        serves_pods=False,
    )


def _ascend(binaries: Mapping[str, str]) -> Iterator[str]:
    """Names of the runtimes whose binary is Huawei's."""
    return (name for name, binary in binaries.items() if "ascend" in binary.lower())


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both; of two values at one place the other's."""
    whole = dict(one)
    for key, value in other.items():
        known = whole.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        whole[key] = _merged(known, value) if both else value  # type: ignore[arg-type]
    return whole


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _typed(table, key, dict, {})
    return found


def _typed(table: Mapping[str, Any], key: str, kind: type, absent: Any) -> Any:
    value = table.get(key)
    if value is None:
        return absent
    if not isinstance(value, kind):
        raise UnreadableConfig(f"{key} is {value!r}")
    return value
