"""The network of a control plane: the cluster's own, or a loopback address.

The cluster's network is a namespace with a bridge to which pods are joined. It is not visible
outside, so its addresses are the same in every cluster, and all of it ends with the process that
holds it. A cluster without pods can use the machine's loopback, which this process reaches too.

Either way the first node's address is the first of the services' range, which is that of the
service `kubernetes`: the API server listens just there, and pods reach it without kube-proxy.
Further nodes are on the same bridge, each with an address of its own.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.binaries import pause
from dev.cluster.processes import Program, run, wait_until

HERE = Path(__file__).parent
SERVER_PORT = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network; all programs of the cluster listen on `address`.

    The namespace is that of the process `pid`, which is the program `holder` of a network of our
    own; None on the machine's loopback.
    """

    address: str
    pid: int | None = None
    holder: Program | None = None

    @classmethod
    def start(cls, identity: str, *, logs: Path) -> Network:
        """Make the own network of the cluster with that name."""
        address = "10.96.0.1"
        script = ("sh", HERE / "network.sh", address, pause(), identity)
        holder = Program.start("network", ["unshare", "--net", "--", *script], logs=logs)
        network = cls(address=address, pid=holder.pid, holder=holder)
        try:
            wait_until(network._is_made, "the cluster's network", timeout=20)
        except BaseException:
            network.stop()
            raise
        return network

    @classmethod
    def loopback(cls) -> Network:
        """A part of the machine's loopback that no other cluster uses.

        Raises:
            OSError: No part out of many is free.
        """
        for attempt in range(256):
            number = os.getpid() + attempt
            network = cls(address=f"127.{64 + (number >> 8) % 64}.{number % 256}.1")
            with socket.socket() as probe:
                if probe.connect_ex((network.address, SERVER_PORT)) != 0:
                    return network
        raise OSError("no free loopback network for a cluster")

    def join(self, number: int) -> str:
        """The address of a node, made unless it is the first's; nodes are counted from 1."""
        if number == 1:
            return self.address
        address = f"10.96.1.{number}"
        run(*self.inside, "ip", "address", "add", f"{address}/32", "dev", "pods")
        return address

    @property
    def services(self) -> str:
        """The services' range, of which `address` is the first."""
        return f"{self.address.rpartition('.')[0]}.0/24"

    @property
    def inside(self) -> tuple[str, ...]:
        """The prefix of a command that must run in it."""
        if self.namespace is None:
            return ()
        return ("nsenter", f"--net={self.namespace}", "--")

    @property
    def namespace(self) -> Path | None:
        """The kernel's file of its namespace; None on the machine's loopback."""
        return Path(f"/proc/{self.pid}/ns/net") if self.pid else None

    def listens(self, port: int) -> bool:
        """Whether a process in it listens on a TCP port."""
        here = f"src {self.address} and sport = :{port}"
        look = ("ss", "--no-header", "--listening", "--tcp", "--numeric", here)
        return run(*self.inside, *look) != ""

    def stop(self) -> None:
        """End it; all processes in it must have ended."""
        if self.holder is not None:
            self.holder.kill()

    def _is_made(self) -> bool:
        assert self.holder is not None
        self.holder.check()
        command = Path(f"/proc/{self.holder.pid}/cmdline").read_bytes()
        return command.startswith(bytes(pause()))
