"""A node under attack: the real daemon in a process of its own, and the peers it must serve."""

from __future__ import annotations

import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import trio

from dev.abuse.front import Front, open_front
from dev.abuse.wire import connect, get
from dev.rig.agent import Agent, running_agent
from dev.rig.parts import Rig
from dev.rig.waiting import listens, until
from trio_npu_dra.kit.grpc import RpcError
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from trio_npu_dra.lab.standins.kubelet import ContractBroken, Kubelet, open_kubelet

PROBE_SECONDS: Final = 5.0
"""The kubelet's deadline for /healthz, as in k8s/base/daemonset.yaml."""
_WARM_ROUNDS: Final = 5


class HarmDone(Exception):
    """An attack succeeded, for example in writing a file that it must not write."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Open files and connections of a process, and its resident memory in MiB."""

    descriptors: int
    memory: float


@dataclass(frozen=True, slots=True)
class Node:
    """The daemon, and the kubelet that it serves.

    Attributes:
        kubelet: A kubelet that has registered the daemon.
        port: The port of the daemon's pages.
        front: The proxy before the API server.
        claim: The claim of a well-behaved pod that comes and goes.
        before: The daemon's figures before any attack.
    """

    rig: Rig
    agent: Agent
    kubelet: Kubelet
    port: int
    front: Front
    claim: Claim
    before: Figures = Figures(0, 0.0)

    @property
    def is_alive(self) -> bool:
        """Whether the daemon runs."""
        return self.agent.process.exitcode is None

    def figures(self) -> Figures:
        """The daemon's figures now; zeroes when it has ended."""
        return self._figures("VmRSS")

    def peak(self) -> Figures:
        """The same, with the maximum memory since its start or `forget_peak`."""
        return self._figures("VmHWM")

    def forget_peak(self) -> None:
        """Let `peak` begin now."""
        with suppress(OSError):  # as in _figures
            self._proc("clear_refs").write_text("5")

    def log_lines(self) -> int:
        """How many lines the daemon has logged."""
        return self.agent.log.read_bytes().count(b"\n")

    async def prepare_and_unprepare(self, claim: Claim | None = None) -> str:
        """Do what the kubelet does for one pod; returns the first failure, or nothing."""
        claim = claim or self.claim
        try:
            answers = await self.kubelet.prepare([claim])
            if error := answers[claim.uid].error:
                return error
            return (await self.kubelet.unprepare([claim]))[claim.uid]
        except (ContractBroken, RpcError) as error:
            return str(error)

    async def probe(self) -> str:
        """Probe as the kubelet's liveness probe does; returns the failure, or nothing."""
        with trio.move_on_after(PROBE_SECONDS):
            try:
                async with await connect(self.port) as stream:
                    status, body = await get(stream, "/healthz")
            except (OSError, trio.BrokenResourceError) as error:
                return f"no answer: {error}"
            return "" if status == 200 else f"status {status}: {body.decode().strip()}"
        return f"no answer within {PROBE_SECONDS:g} s"

    def _proc(self, name: str) -> Path:
        return Path("/proc", str(self.agent.pid), name)

    def _figures(self, memory: str) -> Figures:
        try:
            descriptors = sum(1 for _ in self._proc("fd").iterdir())
            lines = self._proc("status").read_text().splitlines()
        except OSError:  # there is no such process any more
            return Figures(0, 0.0)
        kibibytes = [int(line.split()[1]) for line in lines if line.startswith(f"{memory}:")]
        return Figures(descriptors, sum(kibibytes) / 1024)  # one that just ended has none


@asynccontextmanager
async def open_node(rig: Rig, *, descriptors: int, call_seconds: float) -> AsyncIterator[Node]:
    """Start the daemon and let a kubelet register it.

    Args:
        rig: A node with an HTTP port that the system chooses.
        descriptors: How many the daemon may have open.
        call_seconds: The kubelet's deadline for a call, and for the start.

    Raises:
        HarmDone: The daemon does not start.
    """
    limits = {resource.RLIMIT_NOFILE: descriptors}
    socket = rig.api_socket.with_name("front.sock")
    config = rig.folder / "kubeconfig"
    config.write_text(config.read_text().replace(str(rig.api_socket), str(socket)))
    async with (
        open_front(rig.api_socket, socket) as front,
        running_agent(rig, limits=limits) as agent,
    ):
        await _started(agent, rig.registration, call_seconds)
        async with open_kubelet(rig.registration, call_seconds=call_seconds) as kubelet:
            await until(lambda: _port(agent.log) is not None)
            claim = rig.claim("well-behaved", "npu-0")
            node = Node(rig, agent, kubelet, _port(agent.log) or 0, front, claim)
            await _warm_up(node)
            yield replace(node, before=node.figures())


async def _warm_up(node: Node) -> None:
    """Cause all one-off allocations before anything is counted."""
    for _ in range(_WARM_ROUNDS):
        if await node.prepare_and_unprepare():
            return  # the attack has begun before the daemon did
        for page in ("/healthz", "/metrics"):
            async with await connect(node.port) as stream:
                await get(stream, page)


async def _started(agent: Agent, registration: Path, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await until(lambda: listens(registration) or agent.process.exitcode is not None)
    if agent.process.exitcode is not None:
        last = agent.log.read_text().splitlines()[-1]
        raise HarmDone(f"the start ends with status {agent.process.exitcode}: {last}")
    if not listens(registration):
        raise HarmDone(f"not started within {seconds:g} s")


def _port(log: Path) -> int | None:
    for line in log.read_text().splitlines():
        said = json.loads(line)
        if said["message"] == "pages served" and "port" in said:
            return int(said["port"])
    return None
