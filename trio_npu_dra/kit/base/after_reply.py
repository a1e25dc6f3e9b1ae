"""Runs callbacks just after a reply was sent, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, NoReturn

import trio

SECONDS: Final = 0.001
"""Long enough for the reply to leave, and for more calls of a burst to come."""


class AfterReply:
    """Calls functions a moment later, while `run` runs; in one trio run."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], object]] = deque()
        self._alarm = trio.CancelScope()
        self._has_ended = False

    def __call__(self, function: Callable[[], object]) -> None:
        """Call *function* soon; it must not fail."""
        self._due.append(function)
        if self._has_ended:
            self._catch_up()
        elif self._alarm.deadline == inf:
            self._alarm.deadline = trio.current_time() + SECONDS

    async def run(self) -> NoReturn:
        """Call functions as they become due, until cancelled; then call all the rest."""
        try:
            while True:
                with self._alarm:
                    await trio.sleep_forever()
                self._alarm = trio.CancelScope()
                self._catch_up()
        finally:
            self._has_ended = True  # calls that are cancelled with this task may still end
            self._catch_up()

    def _catch_up(self) -> None:
        while self._due:
            self._due.popleft()()
