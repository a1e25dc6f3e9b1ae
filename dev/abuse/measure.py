"""A node under attack: what the kubelet got, what the daemon used, what stayed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import trio

from dev.abuse.node import Figures, HarmDone, Node
from dev.rig.waiting import until

MORE_DESCRIPTORS = 8
"""Descriptors that vary without an attack: connections to the API server, and for probes."""
MORE_MEMORY = 16.0
"""MiB of freed memory that CPython and the C library may keep."""


@dataclass(slots=True)
class Served:
    """The results of one kind of call, made over and over; `slowest` is in seconds."""

    count: int = 0
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0

    @property
    def good(self) -> int:
        """How many got the right answer."""
        return self.count - len(self.failures)

    async def keep_calling(self, call: Callable[[], Awaitable[str]], stop: trio.Event) -> None:
        """Call until *stop*, and wait for the last call."""
        while not stop.is_set():
            since = trio.current_time()
            failure = await call()
            self.slowest = max(self.slowest, trio.current_time() - since)
            self.count += 1
            if failure:
                self.failures.append(failure)
            await trio.sleep(0.02)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of an attack.

    Attributes:
        claims: Rounds of prepare and unprepare during the attack.
        probes: GETs of /healthz during the attack.
        before: The daemon's figures before the first attack.
        peak: Their maximum.
        after: The figures when they were back to the start, or when the patience ended.
        lines: How many lines it logged from beginning to end.
        harm: What the attack achieved; empty for nothing.
        last: The failure of a claim after the attack; empty for none.
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
        """Whether the daemon's figures are back to the start."""
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
        attack: Lasts while inside.
        rounds: The attack lasts until so many claims and probes have got the right answer.
        seconds: How long it lasts at least.
        patience: Seconds for those rounds, and then for the figures to be as before.
    """

    async def watch() -> None:
        """Keep the peak, also of a daemon that will end."""
        while True:
            outcome.see(node.peak())
            await trio.sleep(0.05)

    outcome = Outcome(before=node.before, peak=node.before, after=node.before)
    lines = node.log_lines()
    async with trio.open_nursery() as watchers:
        watchers.start_soon(watch)
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
    """Claims come and go, and the kubelet probes; waits for the last calls."""
    stop = trio.Event()
    async with trio.open_nursery() as callers:
        callers.start_soon(outcome.claims.keep_calling, node.prepare_and_unprepare, stop)
        callers.start_soon(outcome.probes.keep_calling, node.probe, stop)
        yield
        stop.set()


async def _settle(node: Node, outcome: Outcome, patience: float) -> None:
    """Wait until the daemon's figures are as before, and it serves a claim."""
    with trio.move_on_after(patience):
        while node.is_alive:
            outcome.last = await node.prepare_and_unprepare()
            outcome.after = node.figures()
            if not outcome.last and outcome.is_back:
                break
            await trio.sleep(0.1)
    outcome.after = node.figures()
