"""The kubelet of a node: whether it runs, its version and its feature gates."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.grpc import is_refused, is_socket
from trio_npu_dra.kit.kubelet.endpoints import KUBELET_SOCKET
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem
from trio_npu_dra.tools.doctor.places import Places
from trio_npu_dra.tools.doctor.programs import programs

_CONFIG: Final = "/var/lib/kubelet/config.yaml"
_GATE: Final = "DynamicResourceAllocation"
_VERSION: Final = re.compile(r"v1\.(\d+)")
_FIRST_MINOR: Final = 34
"""The first version that serves resource.k8s.io/v1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """What was found.

    Attributes:
        listens: Whether it listens on its socket for device plugins; None if that is not known.
        socket: That socket.
        gates_off: Where feature gates are switched off that this driver needs.
        unread: Why its configuration could not be read.
    """

    listens: bool | None
    socket: str
    gates_off: tuple[str, ...] = ()
    unread: str = ""


def look(places: Places) -> Kubelet:
    """Look at its socket, its command line and its configuration."""
    socket = places.device_plugins / KUBELET_SOCKET
    can_look = os.access(places.device_plugins, os.X_OK)
    listens = is_socket(socket) and not is_refused(socket) if can_look else None
    running = [*programs(places, "kubelet")]
    gates = (program.flag("--feature-gates") for program in running)
    off = [f"its flag --feature-gates={flag}" for flag in gates if f"{_GATE}=false" in flag]
    unread = ""
    for path in dict.fromkeys(
        [program.flag("--config") or _CONFIG for program in running] or [_CONFIG]
    ):
        try:
            if _gates(places.read(path)).get(_GATE) is False:
                off.append(path)
        except (StorageError, yaml.YAMLError) as error:
            unread = f"{path}: {error}"
    return Kubelet(listens=listens, socket=str(socket), gates_off=tuple(off), unread=unread)


def _gates(content: bytes | None) -> dict[str, Any]:
    config = yaml.safe_load(content or b"")
    gates = config.get("featureGates") if isinstance(config, dict) else None
    return gates if isinstance(gates, dict) else {}


def judge(found: Kubelet, version: str) -> Iterator[Finding]:
    """What that means.

    Args:
        found: What the node has.
        version: What the API server says; empty if it is not known.
    """
    is_well = bool(found.listens)
    if found.listens is None:
        yield not_checked(
            f"{found.socket} is out of reach",
            "Run it as root, on the node or in the driver's pod.",
        )
    elif not found.listens:
        yield problem(
            f"nobody listens on {found.socket}: the kubelet does not run",
            "Start the kubelet, and look at its log.",
        )
    for place in found.gates_off:
        is_well = False
        yield problem(
            f"the feature gate {_GATE} is off in {place}",
            "Remove it there, and restart the kubelet.",
        )
    minor = _VERSION.match(version)
    if minor and int(minor[1]) < _FIRST_MINOR:
        is_well = False
        yield problem(
            f"the kubelet is of version {version}, which knows no resource.k8s.io/v1",
            f"Use Kubernetes 1.{_FIRST_MINOR} or newer.",
        )
    if found.unread:
        yield not_checked(f"its feature gates: {found.unread}")
    if is_well:
        yield ok(f"runs, version {version}" if version else "runs; its version is not known")
