"""Where a control plane listens: in a network of the cluster's own, or on a loopback address.

The cluster's network is a namespace with a bridge that pods are joined to. Nothing
of it is seen outside, so that its addresses are the same in every cluster, and all
of it ends with the process that holds it. Who needs no pods has it simpler on the
machine's loopback, which this process reaches as well.

Either way the node's address is the first of the services' range, which is that of
the service `kubernetes`: the API server listens just there, and pods reach it with
no kube-proxy between.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.binaries import pause
from tests.cluster.processes import Program, run, wait_until

HERE = Path(__file__).parent
SERVER_PORT = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network, `address` the one that all programs of the cluster listen on.

    `holder` is the program as long as which its namespace exists; None on the
    machine's loopback.
    """

    address: str
    holder: Program | None = None

    @classmethod
    def start(cls, identity: str, *, logs: Path) -> Network:
        """Make a network of the cluster's own.

        Args:
            identity: name of the cluster, by which leftovers are found.
            logs: where the holder's log goes.
        """
        address = "10.96.0.1"
        script = ("sh", HERE / "network.sh", address, pause(), identity)
        holder = Program.start("network", ["unshare", "--net", "--", *script], logs=logs)
        network = cls(address=address, holder=holder)
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

    @property
    def services(self) -> str:
        """The services' range, which `address` begins."""
        return f"{self.address.rpartition('.')[0]}.0/24"

    @property
    def inside(self) -> tuple[str, ...]:
        """What stands before a command that is to run in it."""
        if self.namespace is None:
            return ()
        return ("nsenter", f"--net={self.namespace}", "--")

    @property
    def namespace(self) -> Path | None:
        """Where the kernel shows its namespace; None on the machine's loopback."""
        return Path(f"/proc/{self.holder.pid}/ns/net") if self.holder else None

    def listens(self, port: int) -> bool:
        """Whether somebody in it listens on a TCP port."""
        here = f"src {self.address} and sport = :{port}"
        look = ("ss", "--no-header", "--listening", "--tcp", "--numeric", here)
        return run(*self.inside, *look) != ""

    def stop(self) -> None:
        """End it; whoever is still in it must have ended."""
        if self.holder is not None:
            self.holder.kill()

    def _is_made(self) -> bool:
        assert self.holder is not None
        self.holder.check()
        command = Path(f"/proc/{self.holder.pid}/cmdline").read_bytes()
        return command.startswith(bytes(pause()))
