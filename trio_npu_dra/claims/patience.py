"""How long a call goes on trying.

The kubelet ends a call after 45 s and comes back 60 to 90 s later: a fault that passes within the
call must not cost a pod those.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import trio

from trio_npu_dra.errors import ClaimNotAllocated, DeviceHeld, NpuDraError, Unavailable

_FIRST_PAUSE = 0.05  # seconds
_LONGEST_PAUSE = 2.0  # seconds

Attempt = Callable[[AbstractSet[str]], Awaitable[Mapping[str, NpuDraError]]]
"""Tries something for claims given by UID; answers with those that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long after the start of a call a fault is worth another try, in seconds.

    Attributes:
        transient: API server, disk, or chips still booting: until shortly before the kubelet ends
            the call.
        held: Another claim holds the device. After a forced deletion the scheduler gives a device
            away up to 2 s before the kubelet has stopped the old pod.
    """

    transient: float = 40.0
    held: float = 5.0

    def of(self, error: NpuDraError) -> float:
        """The patience with one fault."""
        if isinstance(error, DeviceHeld):
            return self.held
        if isinstance(error, ClaimNotAllocated):
            return 0.0  # the API server answered, and the kubelet asks only for allocated claims
        return self.transient if error.retryable else 0.0

    async def insist(
        self, attempt: Attempt, uids: AbstractSet[str], *, since: float
    ) -> dict[str, NpuDraError]:
        """Call *attempt* for all claims, then again for those for which that may help.

        Args:
            attempt: Must leave the claims whole when it fails or is cancelled.
            uids: The claims of the call.
            since: When the call came (trio's clock).

        Returns:
            What remained wrong, by UID.
        """
        failed: dict[str, NpuDraError] = {}
        for own_pause in pauses():
            errors = await attempt(uids)
            pause = max([own_pause, *(_asked_pause(error) for error in errors.values())])
            elapsed = trio.current_time() + pause - since
            uids = {uid for uid, error in errors.items() if elapsed < self.of(error)}
            failed |= {uid: error for uid, error in errors.items() if uid not in uids}
            if not uids:
                break
            await trio.sleep(pause)
        return failed


def pauses() -> Iterator[float]:
    """Seconds between tries: doubling, capped, and jittered so that nodes do not march in step."""
    pause = _FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        pause = min(2 * pause, _LONGEST_PAUSE)


def _asked_pause(error: NpuDraError) -> float:
    return (error.retry_after or 0.0) if isinstance(error, Unavailable) else 0.0
