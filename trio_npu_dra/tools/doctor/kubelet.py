"""The kubelet of a node: whether it runs, its version and its feature gates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.grpc import is_refused, is_socket
from trio_npu_dra.kit.kubelet.endpoints import KUBELET_SOCKET
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem
from trio_npu_dra.tools.doctor.places import Places, inside, not_read
from trio_npu_dra.tools.doctor.programs import programs

_CONFIG: Final = "/var/lib/kubelet/config.yaml"
_GATE: Final = "DynamicResourceAllocation"
_VERSION: Final = re.compile(r"v1\.(\d+)")
_FIRST_MINOR: Final = 34
"""The first version that serves resource.k8s.io/v1."""


def check(places: Places, version: str) -> Iterator[Finding]:
    """Check the kubelet; *version* is what the API server says, empty if it is not known."""
    socket = places.device_plugins / KUBELET_SOCKET
    unseen: StorageError | None = None
    try:
        inside(places.device_plugins)
    except StorageError as error:
        unseen = error
    gates_off, unread = _gates_off(places)
    problems = [*_problems(socket if unseen is None else None, gates_off, version)]
    if unseen is not None:
        yield not_read(unseen)
    yield from problems
    if unread:
        yield not_checked(f"its feature gates: {unread}")
    if unseen is None and not problems:
        yield ok(f"runs, version {version}" if version else "runs; its version is not known")


def _problems(socket: Path | None, gates_off: Iterable[str], version: str) -> Iterator[Finding]:
    if socket is not None and (not is_socket(socket) or is_refused(socket)):
        yield problem(
            f"nothing listens on {socket}: the kubelet does not run",
            "Start the kubelet, and look at its log.",
        )
    for place in gates_off:
        yield problem(
            f"the feature gate {_GATE} is off in {place}",
            "Remove it there, and restart the kubelet.",
        )
    minor = _VERSION.match(version)
    if minor and int(minor[1]) < _FIRST_MINOR:
        yield problem(
            f"the kubelet is of version {version}, which knows no resource.k8s.io/v1",
            f"Use Kubernetes 1.{_FIRST_MINOR} or newer.",
        )


def runtime_endpoints(places: Places) -> list[str]:
    """The sockets of the container runtimes that kubelets of this node are configured to use."""
    flags = [
        program.flag("--container-runtime-endpoint") for program in programs(places, "kubelet")
    ]
    configs, _ = _configs(places)
    said = (str(config.get("containerRuntimeEndpoint") or "") for config in configs.values())
    return [one for one in dict.fromkeys(flags if any(flags) else said) if one]


def _gates_off(places: Places) -> tuple[list[str], str]:
    """Where the feature gate is off, and why a configuration cannot be read."""
    flags = (program.flag("--feature-gates") for program in programs(places, "kubelet"))
    off = [f"its flag --feature-gates={flag}" for flag in flags if f"{_GATE}=false" in flag]
    configs, unread = _configs(places)
    for path, config in configs.items():
        gates = config.get("featureGates")
        if isinstance(gates, dict) and gates.get(_GATE) is False:
            off.append(path)
    return off, unread


def _configs(places: Places) -> tuple[dict[str, Mapping[str, Any]], str]:
    """The configurations of kubelets by path, and why one cannot be read."""
    files = [program.flag("--config") or _CONFIG for program in programs(places, "kubelet")]
    found: dict[str, Mapping[str, Any]] = {}
    unread = ""
    for path in files or [_CONFIG]:
        try:
            config = yaml.safe_load(places.read(path) or b"")
        except Exception as error:  # noqa: BLE001 - PyYAML's are of many types, as for a wrong date
            unread = f"{path}: {error}"
        else:
            found[path] = config if isinstance(config, dict) else {}
    return found, unread
