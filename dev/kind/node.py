"""A node of kind: a container whose files and processes this machine can reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dev.cluster.processes import ClusterError
from dev.kind.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class KindNode:
    """A running node; its container has the node's name.

    `identity` is the container's id, `pid` its process 1 as this process numbers
    processes: docker must run here, and not in a virtual machine.
    """

    engine: Engine
    name: str
    identity: str
    pid: int

    @classmethod
    def find(cls, engine: Engine, name: str) -> KindNode:
        """Ask docker for the container of that name."""
        identity = engine.ask("inspect", "--format", "{{.Id}}", name).strip()
        return cls(engine=engine, name=name, identity=identity, pid=engine.init_of(identity))

    @property
    def root(self) -> Path:
        """The node's / as this process sees it, which must be root for that."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def address(self) -> str:
        """Its address for the other nodes and their pods."""
        return self.engine.address_of(self.name)

    @property
    def pod_logs(self) -> Path:
        """The folder of its pods' logs."""
        return self.root / "var/log/pods"

    def execute(self, *argv: str | Path, timeout: float = 60) -> str:
        """Run a program on the node; returns its stdout, raises ClusterError if it fails."""
        return self.engine.ask("exec", self.name, *argv, timeout=timeout)

    def kill_kubelet(self) -> None:
        """End the kubelet with SIGKILL, and keep systemd from starting it again."""
        self.execute("systemctl", "kill", "--signal=KILL", "kubelet")
        self.execute("systemctl", "stop", "kubelet")

    def start_kubelet(self) -> None:
        """Start the kubelet that was killed."""
        self.execute("systemctl", "start", "kubelet")

    def restart_kubelet(self) -> None:
        """End the kubelet with SIGKILL; systemd starts it again."""
        self.execute("systemctl", "kill", "--signal=KILL", "kubelet")

    def check(self) -> None:
        """Raise ClusterError if the container has ended."""
        if not self.root.exists():
            raise ClusterError(f"the container {self.name} has ended; see docker logs {self.name}")
