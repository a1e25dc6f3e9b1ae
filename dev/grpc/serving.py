"""A server of two methods and a channel to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from trio_npu_dra.kit.grpc import (
    Channel,
    Route,
    Send,
    Service,
    StreamMethod,
    UnaryMethod,
    listen_unix,
    open_channel,
    serve,
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
    path: Path,
    services: Sequence[Service],
    *,
    grace_seconds: float = 0,
) -> AsyncIterator[tuple[Channel, trio.CancelScope]]:
    """A server and a channel to it; cancelling the scope stops the server and only that."""

    async def run() -> None:
        with stop:
            await serve(listener, services, grace_seconds=grace_seconds)

    listener, stop = listen_unix(path), trio.CancelScope()
    with trio.fail_after(20):
        async with open_channel(path) as channel, trio.open_nursery() as nursery:
            nursery.start_soon(run)
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


class _Call:
    """A call in memory, as its handler sees it."""

    def __init__(self, request: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        self._request = request
        self.send_message = send

    async def recv_message(self) -> Any:
        """Give the request."""
        await trio.lowlevel.checkpoint()
        return self._request


async def run(route: Route, request: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    """Let the handler of *route* answer, without a server."""
    await route.handler.func(_Call(request, send))


async def answer(route: Route, request: Any) -> Any:
    """The reply of a unary handler, without a server."""
    replies = list[Any]()

    async def keep(reply: Any) -> None:
        await trio.lowlevel.checkpoint()
        replies.append(reply)

    await run(route, request, keep)
    (reply,) = replies
    return reply
