"""One value for all clients that ask at about the same time."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

import trio

T = TypeVar("T")


class Coalesced(Generic[T]):
    """Makes a value on request, one at a time, so that its cost does not grow with the clients.

    Args:
        make: Makes the value.
        seconds: How long `get` returns a value after it was made.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], *, seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._making = trio.Lock()
        self._value: T | None = None
        self._fresh_until = -math.inf

    async def get(self) -> T:
        """The newest value; an error of *make* is raised."""
        async with self._making:
            if trio.current_time() >= self._fresh_until:
                self._value = await self._make()
                self._fresh_until = trio.current_time() + self._seconds
        return cast("T", self._value)
