"""Calls at random against a server that keeps restarting: `python -m dev.grpc.stress CALLS`.

Callers cancel, let deadlines pass, leave streams, send halves of requests, reset calls and hang up.
Every call must end, every answer must be that of its question, every stop of the server must end
its handlers, and nothing may be left behind at the end: no task and no descriptor.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from dev.grpc.peer import MESSAGE, connected
from dev.grpc.serving import ECHO, WATCH
from trio_npu_dra.kit.grpc import (
    Channel,
    RpcError,
    Send,
    Status,
    listen_unix,
    open_channel,
    serve,
)
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus

CALLERS: Final = 24
CHANNELS: Final = 6
CALLS_OF_A_SERVER: Final = 40
"""A server stops when so many calls, at most, have reached it."""

GRACES: Final = (0, 0.005, 0.05)
"""Seconds of grace of a stop, one of these."""

STUCK_SECONDS: Final = 60
"""A call or a stop that takes longer is lost."""


@dataclass
class Figures:
    """The results of a run.

    Attributes:
        ends: How many calls ended how.
        stops: Seconds of each stop of the server.
        left: Leaks at the end, by kind; empty if there are none.
    """

    ends: Counter[str] = field(default_factory=Counter)
    stops: list[float] = field(default_factory=list)
    left: dict[str, list[str]] = field(default_factory=dict)

    def leave(self, **left: list[str]) -> None:
        """Note what is left."""
        self.left.update({kind: names for kind, names in left.items() if names})


class Stress:
    """One run.

    Args:
        path: The server's socket.
        calls: How many calls to make.
        seed: For what callers and handlers do; trio chooses the order of tasks.
    """

    def __init__(self, path: Path, calls: int, seed: int) -> None:
        self.figures = Figures()
        self._path = path
        self._left = calls
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._before_stop = 0
        self._stop = trio.Event()
        self._inside = 0

    async def run(self) -> None:
        """Make all calls."""
        async with trio.open_nursery() as service, AsyncExitStack() as opened:
            channels = [
                await opened.enter_async_context(open_channel(self._path)) for _ in range(CHANNELS)
            ]
            service.start_soon(self._keep_serving)
            async with trio.open_nursery() as callers:
                for number in range(CALLERS):
                    callers.start_soon(self._call, channels[number % CHANNELS])
            service.cancel_scope.cancel()

    async def _keep_serving(self) -> None:
        services = [ECHO.handled_by(self._echo), WATCH.handled_by(self._watch)]
        while True:
            self._before_stop = self._random.randrange(CALLS_OF_A_SERVER)
            self._stop = trio.Event()
            since = trio.current_time()
            try:
                async with trio.open_nursery() as nursery:
                    grace = self._random.choice(GRACES)
                    answer = partial(serve, services=services, grace_seconds=grace)
                    nursery.start_soon(answer, listen_unix(self._path))
                    try:
                        await self._stop.wait()
                    finally:
                        since = trio.current_time()
                        nursery.cancel_scope.cancel()
            finally:
                self.figures.stops.append(trio.current_time() - since)
            assert not self._inside, f"{self._inside} handlers outlive their server"
            await trio.lowlevel.checkpoint()

    def _begin(self) -> None:
        """A call has reached the server."""
        self._inside += 1
        self._before_stop -= 1
        if self._before_stop < 0:
            self._stop.set()

    async def _echo(self, request: RegistrationStatus) -> PluginInfo:
        self._begin()
        try:
            if self._random.random() < 0.5:
                await trio.sleep(self._random.random() * 0.003)
            if self._random.random() < 0.1:
                raise RpcError(Status.ABORTED, request.error)
            return PluginInfo(name=request.error)
        finally:
            if self._random.random() < 0.1:
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.001)
            self._inside -= 1

    async def _watch(self, request: RegistrationStatus, send: Send[PluginInfo]) -> None:
        self._begin()
        try:
            for _ in range(5):
                await send(PluginInfo(name=request.error))
                await trio.sleep(self._random.random() * 0.001)
        finally:
            self._inside -= 1

    async def _call(self, channel: Channel) -> None:
        """Make calls until there are enough."""
        kinds: list[Callable[[Channel, str], Awaitable[str]]] = [
            *[self._until_answered] * 6,
            *[self._and_cancel] * 2,
            self._with_deadline,
            self._stream,
            self._by_hand,
        ]
        while self._left > 0:
            self._left -= 1
            with trio.fail_after(STUCK_SECONDS):
                end = await self._random.choice(kinds)(channel, f"call {self._left}")
            self.figures.ends[end] += 1

    async def _until_answered(self, channel: Channel, text: str) -> str:
        """A call that is repeated when the server was away is answered in the end."""
        while (end := await _ask(channel, text, STUCK_SECONDS)) == "away":
            self.figures.ends["repeated"] += 1
            await trio.sleep(0.001)
        assert end in {"answered", "refused"}, end
        return end

    async def _and_cancel(self, channel: Channel, text: str) -> str:
        with trio.move_on_after(self._random.choice((0, 0.003)) * self._random.random()):
            return await _ask(channel, text, STUCK_SECONDS)
        return "cancelled"

    async def _with_deadline(self, channel: Channel, text: str) -> str:
        return await _ask(channel, text, self._random.random() * 0.005)

    async def _stream(self, channel: Channel, text: str) -> str:
        """Leave a stream early, or read it to its end."""
        wanted, got = self._random.randrange(8), 0
        try:
            async with channel.stream(WATCH, RegistrationStatus(error=text)) as replies:
                while got < wanted:
                    assert (await anext(replies)).name == text
                    got += 1
        except StopAsyncIteration:
            assert got == 5
            return "read to its end"
        except RpcError as error:
            return _end(error)
        return "left"

    async def _by_hand(self, _channel: Channel, _text: str) -> str:
        """Begin calls, break some of them off, and hang up at some time."""
        try:
            async with connected(self._path) as peer:
                for _ in range(self._random.randrange(1, 6)):
                    number = peer.call(data=MESSAGE[: self._random.randrange(1, 99)], end=False)
                    if self._random.random() < 0.5:
                        peer.h2.reset_stream(number)
                await peer.flush()
                if self._random.random() < 0.5:
                    with trio.move_on_after(self._random.random() * 0.003):
                        await peer.end()
        except OSError:
            return "away"
        return "broken off"


async def _ask(channel: Channel, text: str, timeout_seconds: float) -> str:
    """One call; returns how it ended, and fails if the answer is not of this call."""
    try:
        reply = await channel.unary(
            ECHO, RegistrationStatus(error=text), timeout_seconds=timeout_seconds
        )
    except RpcError as error:
        if (error.status, error.message) == (Status.ABORTED, text):
            return "refused"
        return _end(error)
    assert reply.name == text
    return "answered"


def _end(error: RpcError) -> str:
    """How a call ended without an answer; a KeyError if it ought not to end so."""
    return {Status.DEADLINE_EXCEEDED: "too late", Status.UNAVAILABLE: "away"}[error.status]


async def stress(calls: int, seed: int, folder: Path) -> Figures:
    """Run *calls* calls and look at what is left.

    Raises:
        AssertionError: A call got an answer that is not its own, or a handler outlived its server.
        TooSlowError: A call or a stop did not end.
    """
    descriptors, tasks = _descriptors(), trio.lowlevel.current_statistics().tasks_living
    run = Stress(folder / "stress.sock", calls, seed)
    await run.run()
    gc.collect()
    living = trio.lowlevel.current_statistics().tasks_living - tasks
    run.figures.leave(
        trio=[f"{living} tasks"] if living else [],
        descriptors=sorted(_descriptors() - descriptors),
    )
    return run.figures


def _descriptors() -> set[str]:
    names = set[str]()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this listing
            names.add(f"{path.name}: {path.readlink()}")
    return names


def main(arguments: list[str] | None = None) -> int:
    """Run and print.

    Returns:
        1 if something is left behind.
    """
    parser = argparse.ArgumentParser(prog="just stress", description=__doc__)
    parser.add_argument("calls", type=int)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    since, cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        figures = trio.run(stress, options.calls, options.seed, Path(folder))
    seconds, cpu = time.monotonic() - since, time.process_time() - cpu
    stops = sorted(figures.stops)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"seed {options.seed}, Python {sys.version.split()[0]}")
    print(*(f"{count:>8} {end}" for end, count in sorted(figures.ends.items())), sep="\n")
    print(f"{len(stops):>8} stops of {stops[len(stops) // 2]:.3f} s, {stops[-1]:.3f} at most")
    print(
        f"{seconds:>8.1f} s, {cpu / options.calls * 1e6:.0f} us of CPU a call, {memory} MiB at most"
    )
    for kind, names in figures.left.items():
        print(f"left of {kind}:", *names, sep="\n  ")
    print("nothing is left behind" if not figures.left else "")
    return 1 if figures.left else 0


if __name__ == "__main__":
    sys.exit(main())
