"""Calls that may have to wait for a disk: in the daemon a thread makes them, not the event loop.

A disk that stalls keeps a call for as long as it likes. Only what needs the call waits then;
probes, health and taints go on. A call that has begun is not cut off, so a cancelled caller waits
for it too, and finds all of its work done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

T = TypeVar("T")

STALL_SECONDS: Final = 5.0
"""A disk that takes longer for one call stalls."""

_OUT: Final[trio.lowlevel.RunVar[dict[object, float] | None]] = trio.lowlevel.RunVar(
    "disk calls, and since when", None
)
_THREADS: Final = trio.CapacityLimiter(40)  # our own: those that wait keep no others from theirs


def use_threads() -> None:
    """From now on this trio run makes each call in a thread; others make it at once."""
    _OUT.set({})


async def run(function: Callable[[], T]) -> T:
    """Call a function that reads or writes files, and that needs no trio; it must end."""
    out = _OUT.get()
    if out is None:
        return function()
    call = object()
    out[call] = trio.current_time()
    try:
        return await trio.to_thread.run_sync(function, limiter=_THREADS)
    finally:
        del out[call]


def stalls() -> tuple[str, ...]:
    """A line if the disk keeps a call waiting."""
    since = min((_OUT.get() or {}).values(), default=trio.current_time())
    seconds = trio.current_time() - since
    return (f"the node's disk has not answered for {seconds:.0f} s",) * (seconds > STALL_SECONDS)
