"""A wait that ends at the earliest of the times that tasks ask for."""

import math

import trio


class Timer:
    """One task waits, and others say until when; two waits end at least *rest_seconds* apart."""

    def __init__(self, rest_seconds: float = 0.0) -> None:
        self._rest_seconds = rest_seconds
        self._at, self._rested_at = math.inf, -math.inf
        self._scope = trio.CancelScope()

    def set(self, *, after: float = 0.0) -> None:
        """Have the wait end in *after* seconds, unless it ends earlier."""
        at = max(trio.current_time() + after, self._rested_at)
        self._at = self._scope.deadline = min(self._at, at)

    async def wait(self) -> None:
        """Wait for that time."""
        with trio.CancelScope(deadline=self._at) as self._scope:
            await trio.sleep_forever()
        self.fulfil()

    def fulfil(self) -> None:
        """What was asked for until now is done."""
        self._at = self._scope.deadline = math.inf
        self._rested_at = trio.current_time() + self._rest_seconds
