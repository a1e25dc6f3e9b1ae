"""`npu-dra serve` as a process of its own, on a `dev.rig.parts.Rig`."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import MappingProxyType

import trio

from dev.rig import forked
from dev.rig.notified import Filter
from dev.rig.parts import Rig
from dev.rig.waiting import listens, until


@dataclass(frozen=True, slots=True)
class Agent:
    """The process and its log.

    Attributes:
        process: The process, which may have ended.
        log: Its log, one JSON object a line.
    """

    process: ForkServerProcess
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process.pid is not None
        return self.process.pid

    async def listening(self, socket: Path) -> None:
        """Wait until it accepts connections; a dead instance's sockets do not count."""
        await until(lambda: listens(socket) or self.process.exitcode is not None)
        assert self.process.exitcode is None, self.log.read_text()

    async def ended(self) -> int:
        """Wait for its end.

        Returns:
            The exit status; less than zero: the signal that ended it.
        """
        await trio.lowlevel.wait_readable(self.process.sentinel)
        assert self.process.exitcode is not None
        return self.process.exitcode

    async def killed(self) -> None:
        """Wait for its end, which must be by SIGKILL."""
        assert await self.ended() == -signal.SIGKILL, self.log.read_text()


@asynccontextmanager
async def running_agent(
    rig: Rig,
    *,
    pod_uid: str = "",
    limits: Mapping[int, int] = MappingProxyType({}),
    calls: Filter | None = None,
    constants: Mapping[str, object] = MappingProxyType({}),
    **changes: object,
) -> AsyncIterator[Agent]:
    """Start it; it is killed at the end if it still runs.

    Args:
        rig: The node.
        pod_uid: That of its pod, when several instances run.
        limits: How much it may have of a resource, by `resource.RLIMIT_...`.
        calls: Before which system calls it is asked.
        constants: Of its modules, by their names with that of the module, those that differ.
        changes: What else is different from the node's settings.
    """
    if pod_uid:
        changes["pod_uid"] = pod_uid
    environment = os.environ | rig.environment(**changes)
    log = rig.folder / f"agent{pod_uid}.log"
    agent = Agent(forked.start(environment, log, limits, calls, constants), log)
    try:
        yield agent
    finally:
        agent.process.kill()
        with trio.CancelScope(shield=True):
            await agent.ended()
        agent.process.close()
