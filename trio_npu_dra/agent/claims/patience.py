"""How long a call goes on trying.

The kubelet ends a call after 45 s and comes back 60 to 90 s later: a fault that passes within the
call must not cost a pod those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import trio

from trio_npu_dra.kit.base.backoff import Backoff, spread
from trio_npu_dra.kit.base.errors import DeviceHeld, DriverError, Forbidden, Unavailable

_BACKOFF = Backoff(first=0.05, limit=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long after the start of a call a fault is worth another try, in seconds.

    Attributes:
        transient: API server, disk, or chips still booting: until shortly before the kubelet ends
            the call.
        held: Another claim holds the device. After a forced deletion the scheduler gives a device
            away up to 2 s before the kubelet has stopped the old pod.
        refused: The API server refuses our identity or lacks our right (401, 403). After its start,
            or just after this driver was installed, its pictures of tokens and RBAC fill within
            seconds, and it refuses whom it does not know yet. Longer is a mistake of people, which
            they should read soon.
    """

    transient: float = 40.0
    held: float = 5.0
    refused: float = 10.0

    def limit_for(self, error: DriverError) -> float:
        """The patience with one fault."""
        if isinstance(error, DeviceHeld):
            return self.held
        if isinstance(error, Forbidden):
            return self.refused
        return self.transient if error.retryable else 0.0


class Attempts:
    """The tries at one thing within a call.

    Args:
        patience: How long they go on.
        since: When the call came (trio's clock).
    """

    def __init__(self, patience: Patience, since: float) -> None:
        self._patience = patience
        self._since = since
        self._failures = 0

    @property
    def give_up_at(self) -> float:
        """When no answer is worth waiting for any more (trio's clock)."""
        return self._since + self._patience.transient

    async def again(self, failed: Mapping[str, DriverError]) -> list[str]:
        """Wait before another try.

        Args:
            failed: What went wrong at the last one, by claim UID.

        Returns:
            The claims that are to be tried again; without any there was no wait.
        """
        if not failed:
            return []
        self._failures += 1
        own = _BACKOFF.pause(self._failures) * spread()
        pause = max([own, *(_asked_pause(error) for error in failed.values())])
        elapsed = trio.current_time() + pause - self._since
        due = [uid for uid, error in failed.items() if elapsed < self._patience.limit_for(error)]
        if due:
            await trio.sleep(pause)
        return due


def _asked_pause(error: DriverError) -> float:
    return (error.retry_after or 0.0) if isinstance(error, Unavailable) else 0.0
