"""One value for all clients that ask at about the same time."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

import trio

T = TypeVar("T")


class Coalesced(Generic[T]):
    """Makes a value on request, once at a time, for all tasks that wait for it.

    `run` does the work, not the callers of `get`: so nothing repeats or cancels it when they come
    and go.

    Args:
        make: Makes the value.
        seconds: How long `get` returns a value after it was made.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], *, seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._wanted = trio.Event()
        self._made = trio.Event()
        self._value: T | None = None
        self._fresh_until = -math.inf

    async def run(self) -> None:
        """Make values on request, until cancelled; an error of *make* ends it."""
        while True:
            await self._wanted.wait()
            self._value = await self._make()
            self._fresh_until = trio.current_time() + self._seconds
            self._wanted = trio.Event()
            self._made.set()
            self._made = trio.Event()

    async def get(self) -> T:
        """The newest value; only while `run` runs is there one."""
        if trio.current_time() >= self._fresh_until:
            self._wanted.set()
            await self._made.wait()
        return cast("T", self._value)
