"""What many nodes cost one API server over some time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Self

from dev.benchmarks.machine import Usage
from dev.benchmarks.relay import Relay
from dev.cluster import audit
from dev.cluster.control_plane import ControlPlane

SERVER: Final = "kube-apiserver"
ETCD: Final = "etcd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Requests, bytes and CPU of a phase, of all nodes.

    Attributes:
        requests: Requests that began, watches among them.
        refused: Requests that were answered with an error.
        connections: Connections that clients opened, each with a TLS handshake.
        received: Bytes that clients got, those of TLS included.
        sent: Bytes that they sent.
        api_ms: CPU time of the API server, beyond what it spends without nodes; at least 0.
        etcd_ms: The same of etcd.
        seconds: How long the nodes took to do it, or were watched.
    """

    requests: float
    refused: float
    connections: float
    received: float
    sent: float
    api_ms: float
    etcd_ms: float
    seconds: float

    def scaled(self, factor: float) -> Self:
        """The same for more nodes, or fewer, in the same time."""
        scaled = {name: value * factor for name, value in asdict(self).items()}
        return type(self)(**scaled | {"seconds": self.seconds})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What the API server and etcd spend without any node, by part.

    Attributes:
        start_ms: CPU time of a start of the API server, beyond that of so many quiet seconds.
        ms_a_second: CPU time of a quiet second.
    """

    start_ms: Mapping[str, float]
    ms_a_second: Mapping[str, float]


class Meter:
    """Measures phases of nodes that are a *user* in the audit log and connect through a relay."""

    def __init__(self, plane: ControlPlane, relay: Relay, *, user: str, alone: Alone) -> None:
        self._plane, self._relay, self._user, self._alone = plane, relay, user, alone
        self.begin()

    def begin(self, *, with_start: bool = False) -> None:
        """A phase begins now; *with_start*, if the API server is about to restart."""
        self._began = time.monotonic()
        self._mark = audit.mark(self._plane.audit_log)
        self._bytes = self._relay.bytes.copy()
        self._connections = self._relay.connections
        self._cpu_ms = cpu_ms(self._plane)
        if with_start:
            self._cpu_ms[SERVER] = 0
            self._cpu_ms = {
                part: spent + self._alone.start_ms[part] for part, spent in self._cpu_ms.items()
            }

    @property
    def elapsed(self) -> float:
        """Seconds since the phase began."""
        return time.monotonic() - self._began

    def end(self, *, seconds: float, further_watches: int = 0) -> Cost:
        """The phase ends now.

        Args:
            seconds: How long the nodes were at work.
            further_watches: How many more watches are open than at the beginning: the audit log
                has requests that have ended.
        """
        elapsed = self.elapsed
        requests = audit.requests(self._plane.audit_log, since=self._mark)
        theirs = [request for request in requests if request.user == self._user]
        moved = self._relay.bytes - self._bytes
        spent = {
            part: max(0.0, late - self._cpu_ms[part] - self._alone.ms_a_second[part] * elapsed)
            for part, late in cpu_ms(self._plane).items()
        }
        return Cost(
            requests=len(theirs) + further_watches,
            refused=sum(request.code >= 400 for request in theirs),
            connections=self._relay.connections - self._connections,
            received=moved["received"],
            sent=moved["sent"],
            api_ms=spent[SERVER],
            etcd_ms=spent[ETCD],
            seconds=seconds,
        )


def cpu_ms(plane: ControlPlane) -> dict[str, float]:
    """The CPU time of the API server and etcd so far."""
    return {part: Usage.of(plane.part(part).process.pid).cpu_ms for part in (SERVER, ETCD)}
