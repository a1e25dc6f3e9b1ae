"""A daemon that is killed just before one of its system calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import trio

from dev.rig.agent import Agent, running_agent
from dev.rig.notified import Calls
from dev.rig.parts import Rig
from tests.reliability.points import SYSTEM_CALLS, Points


class Reaper:
    """Kills a daemon at a point, named by what the call does and, from the second on, its number.

    Args:
        points: Names calls.
        spares: Whether the daemon lives on at the point with this name.

    Attributes:
        points: As given.
        died_at: The point; empty while the daemon lives.
    """

    def __init__(self, points: Points, spares: Callable[[str], bool]) -> None:
        self.points = points
        self.died_at = ""
        self._spares = spares
        self._visits: Counter[str] = Counter()
        self._has_begun = False

    def begin(self) -> None:
        """From now on points count."""
        self._has_begun = True

    async def watch(self, calls: Calls, agent: Agent) -> None:
        """Judge each call of the daemon, until cancelled."""
        listener = await calls.listen()
        while True:
            await trio.lowlevel.wait_readable(listener)
            call = calls.receive()
            if self.died_at or call is None:
                await trio.sleep(0.001)  # the end of the process is reported as a call that is none
                continue
            name = self.points.name(call) if self._has_begun else ""
            if name and not self._spares(name := self._numbered(name)):
                self.kill(agent, name)
            else:
                calls.allow(call)

    def kill(self, agent: Agent, point: str) -> None:
        """Kill, if it still lives; a call that waits is not made any more."""
        self.died_at = self.died_at or point
        agent.process.kill()

    def _numbered(self, name: str) -> str:
        self._visits[name] += 1
        visit = self._visits[name]
        return name if visit == 1 else f"{name} ({visit})"


@asynccontextmanager
async def mortal_agent(
    rig: Rig, reaper: Reaper, *, constants: Mapping[str, object] = MappingProxyType({})
) -> AsyncIterator[Agent]:
    """Start the daemon as a process of its own, which *reaper* watches from its first call on.

    Args:
        rig: Its node.
        reaper: Decides when it dies.
        constants: As for `running_agent`.
    """
    calls = Calls(SYSTEM_CALLS)
    try:
        async with trio.open_nursery() as nursery:
            async with running_agent(rig, calls=calls.filter, constants=constants) as agent:
                nursery.start_soon(reaper.watch, calls, agent)
                yield agent
            nursery.cancel_scope.cancel()
    finally:
        calls.close()
