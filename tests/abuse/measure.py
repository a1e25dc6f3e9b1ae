"""How a node fares under an attack: what the kubelet got, what the daemon took, what stayed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from tests.abuse.node import Figures, HarmDone, Node
from tests.waiting import until

MORE_DESCRIPTORS = 8
"""What comes and goes without an attack: connections to the API server, and for probes."""
MORE_MEMORY = 16.0
"""MiB that CPython and the C library may keep of what was freed."""


@dataclass(slots=True)
class Served:
    """What became of one kind of call, made over and over.

    Attributes:
        count: How many ended.
        failures: What went wrong.
        slowest: Seconds of the longest one.
    """

    count: int = 0
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0

    @property
    def good(self) -> int:
        """How many were answered as they should be."""
        return self.count - len(self.failures)

    async def keep_calling(
        self, call: Callable[[], Awaitable[str]], *, pause: float, stop: trio.Event
    ) -> None:
        """Call until *stop*; the call of that moment is waited for."""
        while not stop.is_set():
            since = trio.current_time()
            failure = await call()
            self.slowest = max(self.slowest, trio.current_time() - since)
            self.count += 1
            if failure:
                self.failures.append(failure)
            await trio.sleep(pause)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How it went.

    Attributes:
        claims: Rounds of prepare and unprepare during the attack.
        probes: GETs of /healthz during the attack.
        before: What the daemon had before the first attack.
        peak: What it had at most.
        after: What it had when it was back to the start, or at the end of the patience.
        lines: What it logged from beginning to end.
        harm: What the attack got; empty for nothing.
        last: What went wrong with a claim after the attack; empty for nothing.
    """

    claims: Served = field(default_factory=Served)
    probes: Served = field(default_factory=Served)
    before: Figures
    peak: Figures
    after: Figures
    lines: int = 0
    harm: str = ""
    last: str = ""

    def see(self, now: Figures) -> None:
        """Keep the peak."""
        self.peak = Figures(
            max(self.peak.descriptors, now.descriptors), max(self.peak.memory, now.memory)
        )

    @property
    def is_back(self) -> bool:
        """Whether the daemon has what it had."""
        return (
            self.after.descriptors <= self.before.descriptors + MORE_DESCRIPTORS
            and self.after.memory <= self.before.memory + MORE_MEMORY
        )


async def measure(
    node: Node,
    attack: AbstractAsyncContextManager[None],
    *,
    rounds: int,
    seconds: float = 0.0,
    patience: float,
) -> Outcome:
    """Attack a node while a kubelet uses it.

    Args:
        node: The node.
        attack: Goes on while inside.
        rounds: The attack lasts until so many claims and probes have been answered well.
        seconds: How long it lasts at least.
        patience: Seconds for those rounds, and then for everything to be as before.
    """
    outcome = Outcome(before=node.before, peak=node.before, after=node.before)
    lines = node.log_lines()
    async with trio.open_nursery() as watchers:
        watchers.start_soon(_watch, node, outcome)
        try:
            async with attack, _used(node, outcome):
                await trio.sleep(seconds)
                with trio.move_on_after(patience):
                    await until(lambda: min(outcome.claims.good, outcome.probes.good) >= rounds)
        except HarmDone as error:
            outcome.harm = str(error)
        watchers.cancel_scope.cancel()
    await _settle(node, outcome, patience)
    outcome.see(node.peak())
    node.forget_peak()
    outcome.lines = node.log_lines() - lines
    if status := node.agent.process.exitcode:
        outcome.harm = f"the daemon ended with status {status}"
    return outcome


@asynccontextmanager
async def _used(node: Node, outcome: Outcome) -> AsyncIterator[None]:
    """Claims come and go, and the kubelet probes; the calls of the last moment are waited for."""
    stop = trio.Event()
    async with trio.open_nursery() as callers:
        for served, call, pause in (
            (outcome.claims, node.prepare_and_unprepare, 0.02),
            (outcome.probes, node.probe, 0.02),
        ):
            callers.start_soon(partial(served.keep_calling, call, pause=pause, stop=stop))
        yield
        stop.set()


async def _watch(node: Node, outcome: Outcome) -> None:
    """Keep the peak, also for a daemon that will end."""
    while True:
        outcome.see(node.peak())
        await trio.sleep(0.05)


async def _settle(node: Node, outcome: Outcome, patience: float) -> None:
    """Wait until the daemon has what it had, and serves a claim."""
    with trio.move_on_after(patience):
        while node.is_alive:
            outcome.last = await node.prepare_and_unprepare()
            outcome.after = node.figures()
            if not outcome.last and outcome.is_back:
                break
            await trio.sleep(0.1)
    outcome.after = node.figures()
