"""What happened in the daemon, on its way to the metrics, which are loaded later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from trio_npu_dra.agent.claims.service import CallAnswered
from trio_npu_dra.ascend.dcmi.calls import DcmiCall
from trio_npu_dra.ascend.dcmi.types import FaultEvent
from trio_npu_dra.kit.pool import SliceWritten

_LIMIT: Final = 10_000
"""Facts that wait at most; a start on 64 chips makes some 3,000, most of them calls of DCMI."""


@dataclass(frozen=True, slots=True)
class EventPublished:
    """A fault event led to another pool, which the API server has accepted."""

    seconds: float  # since the event arrived


Fact: TypeAlias = CallAnswered | DcmiCall | FaultEvent | SliceWritten | EventPublished


class MetricsInbox:
    """Passes facts on, in order; those that come before the listener wait for it.

    Any thread may tell one.

    Args:
        are_kept: Whether there will be a listener.
    """

    def __init__(self, *, are_kept: bool) -> None:
        self._are_kept = are_kept
        self._waiting: deque[Fact] = deque(maxlen=_LIMIT)
        self._listener: Callable[[Fact], None] | None = None

    def __call__(self, fact: Fact) -> None:
        """Something happened."""
        if self._are_kept:
            self._waiting.append(fact)
            self._pass_on()

    def tell(self, listener: Callable[[Fact], None]) -> None:
        """Pass on what happened until now, and all that will."""
        self._listener = listener
        self._pass_on()

    def _pass_on(self) -> None:
        # Whoever appends looks for the listener afterwards, so no fact stays behind, and two
        # threads that are here at once take different facts.
        while self._listener is not None:
            try:
                fact = self._waiting.popleft()
            except IndexError:
                return
            self._listener(fact)
