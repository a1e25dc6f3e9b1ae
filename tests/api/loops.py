"""Both event loops that the client supports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import trio

LOOPS = ("trio", "asyncio")
_LIMIT = 10.0


async def run_on(loop: str, function: Callable[[], Awaitable[None]]) -> None:
    """Await *function* here, or under asyncio in a thread, for at most 10 s."""
    if loop == "trio":
        await _bounded(function)
    else:
        await trio.to_thread.run_sync(partial(anyio.run, _bounded, function, backend=loop))


async def _bounded(function: Callable[[], Awaitable[None]]) -> None:
    with anyio.fail_after(_LIMIT):
        await function()
