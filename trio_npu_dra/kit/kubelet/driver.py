"""What a DRA driver does for the kubelet, in the terms of neither gRPC nor any hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A reference to a ResourceClaim; a later claim of the same name has another UID."""

    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """A device that containers can be given now.

    Attributes:
        requests: The claim's requests that it serves, without subrequests; empty means all.
        pool: The pool it was allocated from.
        device: Its name in that pool.
        cdi_device_ids: Fully qualified CDI names; the first stands for it in pod status.
        share_id: Which share of the device, where it is allocated several times.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_device_ids: tuple[str, ...]
    share_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareResult:
    """The result of preparing one claim.

    Attributes:
        devices: The claim's devices; does not count when there is an error.
        error: Why not, for the pod's owner; empty on success.
    """

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class Driver(Protocol):
    """Prepares and unprepares claims.

    Both methods must be idempotent, may run side by side, and may be cancelled. A claim that fails
    is an entry in the result; an exception is a bug and fails the whole call.
    """

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Make the devices of *claims*, which share one pod, usable; one result a claim, by UID."""

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Undo what was done for *claims*; one that was never prepared is a success.

        Returns:
            One error text for each claim, by UID; empty on success.
        """
