"""Passes facts of the daemon's rooms to the metrics, which are loaded later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

_LIMIT: Final = 10_000
"""Facts that wait at most; a start on 64 chips makes some 3,000, most of them calls of DCMI."""


class MetricsInbox:
    """Passes facts on, in order; those that come before the listener wait for it.

    A fact is a value of the room where it happened; the inbox knows no kind of them. Any thread may
    call it. Facts are dropped if there will be no listener (*are_kept*).
    """

    def __init__(self, *, are_kept: bool) -> None:
        self._are_kept = are_kept
        self._waiting: deque[object] = deque(maxlen=_LIMIT)
        self._listener: Callable[[object], None] | None = None

    def __call__(self, fact: object) -> None:
        """Something happened."""
        if self._are_kept:
            self._waiting.append(fact)
            self._pass_on()

    def tell(self, listener: Callable[[object], None]) -> None:
        """Pass on the facts until now, and all that follow."""
        self._listener = listener
        self._pass_on()

    def _pass_on(self) -> None:
        # A thread that appends looks for the listener afterwards, so no fact stays behind; and two
        # threads that are here together take different facts.
        while self._listener is not None:
            try:
                fact = self._waiting.popleft()
            except IndexError:
                return
            self._listener(fact)
