"""How long work waits before it is done again: after a failure, and after a change."""

from __future__ import annotations

import logging
import random
from math import inf
from typing import Final

import trio

from trio_npu_dra.kit.base.errors import DriverError, Unavailable, Unreadable

_FIRST: Final = 0.2
"""Seconds after the first failure, at most."""
_LIMIT: Final = 4.0
"""The driver must be right again within 5 s of the API server's return. 5,000 nodes then send 1,700
requests a second, spread evenly by the jitter: refused connections cost an absent server nothing,
and a busy one says with Retry-After (429, 503) how long to wait.
"""
_UNREADABLE_LIMIT: Final = 300.0
_ASKED_LIMIT: Final = 60.0
"""Seconds that the API server can ask for."""
_QUIET: Final = 30.0
"""Longer than one request can take to fail."""

AT_ONCE: Final = 10
PER_SECOND: Final = 5.0
"""Both are the defaults of client-go (burst and QPS)."""


class Backoff:
    """Pauses that double with each failure, up to a limit, with jitter, so that nodes spread.

    Once nothing has failed for twice the limit, and for `_QUIET` seconds, they start over.

    Args:
        first: Seconds after the first failure, at most.
        limit: Seconds at most, unless the API server asks for more.

    Attributes:
        failures: How many there were since the last start.
    """

    def __init__(self, first: float = _FIRST, limit: float = _LIMIT) -> None:
        self.failures = 0
        self._first = first
        self._limit = limit
        self._again_at = -inf

    def failed(self, *errors: DriverError) -> float:
        """Note a failure.

        Returns:
            Seconds to wait before the next try: at least as long as the API server asked for (up to
            a minute), and up to half as long again, because it asks all nodes for the same.
        """
        now = trio.current_time()
        if now - self._again_at > max(_QUIET, 2 * self._limit):
            self.failures = 0
        # The exponent is bounded because a float is.
        own = min(self._limit, self._first * 2.0 ** min(self.failures, 64))
        self.failures += 1
        asked = [error.retry_after or 0.0 for error in errors if isinstance(error, Unavailable)]
        factor = random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
        pause = max(own * factor, min(max(asked, default=0.0), _ASKED_LIMIT) * (0.5 + factor))
        self._again_at = now + pause
        return pause


class Retry:
    """Pauses of work that is retried for ever.

    It logs the 1st, 2nd, 4th, 8th... failure, and the recovery; so an hour without the API server
    costs a dozen lines. Answers that are not understood last longer than an outage: their pauses
    grow to minutes, and count apart, because a server that just starts may send one.

    Args:
        what: The work that fails, for the log line.
        log: The owner's logger.
        limit: Seconds between retries at most, when the API server does not ask for more.
    """

    def __init__(self, what: str, log: logging.Logger, *, limit: float = _LIMIT) -> None:
        self._what = what
        self._log = log
        self._outage = Backoff(limit=limit)
        self._unreadable = Backoff(limit=_UNREADABLE_LIMIT)
        self._is_logged = False

    def failed(self, error: DriverError) -> float:
        """Note a failure; returns seconds to wait before the next try."""
        backoff = self._unreadable if isinstance(error, Unreadable) else self._outage
        pause = backoff.failed(error)
        if backoff.failures.bit_count() == 1:
            self._is_logged = True
            fields = {"failures": backoff.failures, "retry_s": round(pause, 1)}
            self._log.warning(
                "%s failed, will retry", self._what, extra={"error": str(error), **fields}
            )
        return pause

    def recovered(self) -> None:
        """Log the recovery if the log has a failure before it."""
        if self._is_logged:
            self._is_logged = False
            self._log.info("%s works again", self._what)


class ChangePace:
    """Turns to write what changes: a bucket of `AT_ONCE` tokens that fills at `PER_SECOND`.

    Every watcher of an object receives each write, and needs only the newest.
    """

    def __init__(self) -> None:
        self._full_at = -inf

    async def turn(self) -> None:
        """Wait for the next turn, and take it."""
        await trio.sleep_until(self._full_at - (AT_ONCE - 1) / PER_SECOND)
        self._full_at = max(self._full_at, trio.current_time()) + 1 / PER_SECOND
