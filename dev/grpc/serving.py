"""A server of two methods and a channel to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from trio_npu_dra.kit.grpc import (
    DEFAULT_LIMITS,
    Bridge,
    Channel,
    Limits,
    Route,
    Send,
    StreamMethod,
    UnaryMethod,
)
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus

ECHO = UnaryMethod("/test.Test/Echo", RegistrationStatus, PluginInfo)
WATCH = StreamMethod("/test.Test/Watch", RegistrationStatus, PluginInfo)
HELLO = RegistrationStatus(error="hello")


async def echo(request: RegistrationStatus) -> PluginInfo:
    """Return the text of the request."""
    await trio.lowlevel.checkpoint()
    return PluginInfo(name=request.error)


@asynccontextmanager
async def serving(
    bridge: Bridge,
    path: Path,
    routes: Sequence[Route],
    *,
    grace_seconds: float = 0,
    limits: Limits = DEFAULT_LIMITS,
) -> AsyncIterator[tuple[Channel, trio.CancelScope]]:
    """A server and a channel to it; cancelling the scope stops the server and only that."""

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        with stop:
            await bridge.serve_unix(
                path, routes, grace_seconds=grace_seconds, limits=limits, task_status=task_status
            )

    stop = trio.CancelScope()
    with trio.fail_after(20):
        async with bridge.dial(path) as channel, trio.open_nursery() as nursery:
            await nursery.start(run)
            yield channel, stop
            stop.cancel()


class Held:
    """A handler that waits until it is let go, and says how it ended."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self.let_go = trio.Event()
        self.cancelled = trio.Event()
        self.deadline = float("inf")

    async def __call__(self, request: RegistrationStatus) -> PluginInfo:
        """Answer like `echo`, once let go."""
        self.deadline = trio.current_effective_deadline()
        self.entered.set()
        try:
            await self.let_go.wait()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        return PluginInfo(name=request.error)

    async def watch(self, request: RegistrationStatus, send: Send[PluginInfo]) -> None:
        """Send one answer, then wait as a call does."""
        await send(PluginInfo(name=request.error))
        await self(request)
