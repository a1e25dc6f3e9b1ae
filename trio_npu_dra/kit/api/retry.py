"""How long to wait before asking again, and how often to say so in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trio_npu_dra.kit.base.backoff import Backoff, spread
from trio_npu_dra.kit.base.errors import KubeError, Unavailable, Unreadable

RETRY_LIMIT = 4.0
"""Seconds between retries at most, when the API server does not ask for more.

The driver must be right again within 5 s of the API server's return. 5,000 nodes then send 1,700
requests a second, spread evenly by the jitter: refused connections cost an absent server nothing,
and a busy one says with Retry-After (429, 503) how long to wait.
"""
_UNREADABLE_LIMIT = 300.0
"""Seconds between retries at most, while the answers are not understood."""
_WISH_LIMIT = 60.0
"""Seconds that the API server can ask for."""
_QUIET = 10.0
"""Seconds without a failure, at least, after which the next one counts as the first."""


class Retry:
    """Delays that double up to a limit, jittered so that 5,000 nodes do not come back at once.

    It logs the 1st, 2nd, 4th, 8th... failure, and the recovery; so an hour without the API server
    costs a dozen lines. A recovery that lasts less than `_QUIET` seconds, or than the delay before
    it, does not restart the count.

    Args:
        what: What keeps failing, for the log line.
        log: The owner's logger.
        first: Seconds before the first retry.
        limit: Seconds between retries at most, when the API server does not ask for more and its
            answers are understood.
        clock: Seconds, for tests.
    """

    def __init__(
        self,
        what: str,
        log: logging.Logger,
        *,
        first: float = 0.2,
        limit: float = RETRY_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._log = log
        self._backoff = Backoff(first, limit)
        self._unreadable_backoff = Backoff(first, _UNREADABLE_LIMIT)
        self._clock = clock
        self._count = 0
        self._unreadable = 0
        self._delay = 0.0
        self._unsaid = False
        self._recovered_at: float | None = None

    def failed(self, error: KubeError) -> float:
        """Note a failure.

        Returns:
            Seconds to wait before the next try: at least as long as the API server asked for (up to
            a minute), and up to half as long again, because it asks all nodes for the same.
        """
        quiet = max(_QUIET, self._delay)
        if self._recovered_at is not None and self._clock() - self._recovered_at > quiet:
            self._count = self._unreadable = 0
        self._recovered_at = None
        self._count += 1
        if isinstance(error, Unreadable):
            self._unreadable += 1
            own = self._unreadable_backoff.pause(self._unreadable)
        else:
            own = self._backoff.pause(self._count)
        wish = (error.retry_after or 0.0) if isinstance(error, Unavailable) else 0.0
        factor = spread()
        delay = max(own * factor, min(wish, _WISH_LIMIT) * (0.5 + factor))
        self._delay = delay
        if self._count.bit_count() == 1:
            self._unsaid = True
            self._log.warning(
                "%s failed, will retry",
                self._what,
                extra={"error": str(error), "failures": self._count, "retry_s": round(delay, 1)},
            )
        return delay

    def recovered(self) -> None:
        """Note a success."""
        if self._count and self._recovered_at is None:
            self._recovered_at = self._clock()
        if self._unsaid:
            self._unsaid = False
            self._log.info("%s works again", self._what, extra={"failures": self._count})
