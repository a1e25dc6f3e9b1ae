"""Pauses between requests that keep failing, and how often the log says so."""

from __future__ import annotations

import logging

import trio

from trio_npu_dra.kit.base.backoff import Backoff, spread
from trio_npu_dra.kit.base.errors import KubeError, Unavailable, Unreadable

_FIRST = 0.2
"""Seconds before the first retry."""
_LIMIT = 4.0
"""The driver must be right again within 5 s of the API server's return. 5,000 nodes then send 1,700
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
    """Delays that double up to a limit, with jitter, so that 5,000 nodes do not return together.

    It logs the 1st, 2nd, 4th, 8th... failure, and the recovery; so an hour without the API server
    costs a dozen lines. A recovery that lasts less than `_QUIET` seconds, or than the delay before
    it, does not restart the count. Answers that are not understood have a count of their own, which
    restarts only after `_UNREADABLE_LIMIT` seconds: a watch may meet the same event again, later.

    Args:
        what: The work that fails, for the log line.
        log: The owner's logger.
        limit: Seconds between retries at most, when the API server does not ask for more.
    """

    def __init__(self, what: str, log: logging.Logger, *, limit: float = _LIMIT) -> None:
        self._what = what
        self._log = log
        self._backoff = Backoff(_FIRST, limit)
        self._unreadable_backoff = Backoff(_FIRST, _UNREADABLE_LIMIT)
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
        if self._recovered_at is not None:
            quiet = trio.current_time() - self._recovered_at
            if quiet > max(_QUIET, self._delay):
                self._count = 0
            if quiet > _UNREADABLE_LIMIT:
                self._unreadable = 0
        self._recovered_at = None
        self._count += 1
        if isinstance(error, Unreadable):
            self._unreadable += 1
            own = self._unreadable_backoff.pause(self._unreadable)
        else:
            own = self._backoff.pause(self._count)
        wish = (error.retry_after or 0.0) if isinstance(error, Unavailable) else 0.0
        factor = spread()
        self._delay = max(own * factor, min(wish, _WISH_LIMIT) * (0.5 + factor))
        if self._count.bit_count() == 1:
            self._unsaid = True
            failures = {"failures": self._count, "retry_s": round(self._delay, 1)}
            self._log.warning(
                "%s failed, will retry", self._what, extra={"error": str(error), **failures}
            )
        return self._delay

    def recovered(self) -> None:
        """Note a success."""
        if self._count and self._recovered_at is None:
            self._recovered_at = trio.current_time()
        if self._unsaid:
            self._unsaid = False
            self._log.info("%s works again", self._what, extra={"failures": self._count})
