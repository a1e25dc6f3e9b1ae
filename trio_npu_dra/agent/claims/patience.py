"""How long a call repeats what failed.

The kubelet ends a call after 45 s and calls again 60 to 90 s later. An error that passes within the
call must not cost a pod this time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import trio

from trio_npu_dra.kit.base.errors import DeviceHeld, DriverError, Forbidden
from trio_npu_dra.kit.base.pace import Backoff


@dataclass(frozen=True, slots=True)
class Patience:
    """How long after the start of a call an error is worth another try, in seconds.

    Attributes:
        transient: For API server, disk, and chips that boot: until just before the kubelet ends
            the call.
        held: For a device that another claim holds: after a forced deletion the scheduler gives it
            to another pod up to 2 s before the kubelet has stopped the old one.
        refused: For 401 and 403. After its own start, or after this driver's installation, the API
            server learns of tokens and RBAC within seconds. A longer refusal is an administrator's
            mistake, and the pod's Event should name it soon.
    """

    transient: float = 40.0
    held: float = 5.0
    refused: float = 10.0

    def limit_for(self, error: DriverError) -> float:
        """The patience with one error."""
        if isinstance(error, DeviceHeld):
            return self.held
        if isinstance(error, Forbidden):
            return self.refused
        return self.transient if error.retryable else 0.0


class Attempts:
    """The tries within one call, which came at *since* (trio's clock)."""

    def __init__(self, patience: Patience, since: float) -> None:
        self._patience = patience
        self._since = since
        self._backoff = Backoff(first=0.05, limit=2.0)

    @property
    def give_up_at(self) -> float:
        """When to stop waiting for an answer (trio's clock)."""
        return self._since + self._patience.transient

    async def again(self, failed: Mapping[str, DriverError]) -> list[str]:
        """Wait, and name the claims to try again; without any, do not wait.

        Args:
            failed: The errors of the last try, by claim UID.
        """
        pause = self._backoff.failed(*failed.values())
        elapsed = trio.current_time() + pause - self._since
        due = [uid for uid, error in failed.items() if elapsed < self._patience.limit_for(error)]
        if due:
            await trio.sleep(pause)
        return due
