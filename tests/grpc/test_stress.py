"""Calls at random against a server that keeps restarting.

Callers cancel, let deadlines pass, leave streams, send halves of requests, reset calls and hang up.
Every call must end, every answer must be that of its question, every stop of the server must end
its handlers, and nothing may be left behind at the end: no task and no descriptor.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
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


class Stress:
    """One run.

    Args:
        path: The server's socket.
        calls: How many calls to make.
        seed: For what callers and handlers do; trio chooses the order of tasks.
    """

    def __init__(self, path: Path, calls: int, seed: int) -> None:
        self.ends = Counter[str]()
        self.stops = 0
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
            async with trio.open_nursery() as nursery:
                grace = self._random.choice(GRACES)
                answer = partial(serve, services=services, grace_seconds=grace)
                nursery.start_soon(answer, listen_unix(self._path))
                await self._stop.wait()
                nursery.cancel_scope.cancel()
            self.stops += 1
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
            self.ends[end] += 1

    async def _until_answered(self, channel: Channel, text: str) -> str:
        """A call that is repeated when the server was away is answered in the end."""
        while (end := await _ask(channel, text, STUCK_SECONDS)) == "away":
            self.ends["repeated"] += 1
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


def _descriptors() -> set[str]:
    names = set[str]()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this listing
            names.add(f"{path.name}: {path.readlink()}")
    return names


async def test_calls_at_random_leave_nothing_behind(path: Path) -> None:
    """Every call ends, with its own answer; no task and no descriptor stays."""
    descriptors, tasks = _descriptors(), trio.lowlevel.current_statistics().tasks_living
    stress = Stress(path, calls=300, seed=1)
    await stress.run()
    gc.collect()
    assert stress.ends.total() >= 300
    assert stress.ends["answered"] > 0
    assert stress.stops > 1
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert _descriptors() == descriptors
