"""What a DRA driver does for the kubelet, in the terms of neither gRPC nor any hardware."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trio_npu_dra.kit.base.errors import DriverError


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A reference to a ResourceClaim; a later claim of the same name has another UID."""

    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


class ClaimByClaim(ABC):
    """A `Driver` that takes each claim of a call by itself: what it raises is that claim's error.

    A driver that gains from the claims of a call together fulfils `Driver` instead.
    """

    @abstractmethod
    async def prepare_claim(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """Make the claim's devices usable, again if they are.

        Raises:
            DriverError: They cannot be; the message is for the owner of the pod.
        """

    @abstractmethod
    async def unprepare_claim(self, ref: ClaimRef) -> None:
        """Undo that, if it was done.

        Raises:
            DriverError: It cannot be undone now.
        """

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Prepare one claim after the other; see `Driver`."""
        results = {}
        for ref in claims:
            try:
                results[ref.uid] = PrepareResult(devices=await self.prepare_claim(ref))
            except DriverError as error:
                results[ref.uid] = PrepareResult(error=str(error))
        return results

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Unprepare one claim after the other; see `Driver`."""
        errors = {ref.uid: "" for ref in claims}
        for ref in claims:
            try:
                await self.unprepare_claim(ref)
            except DriverError as error:
                errors[ref.uid] = str(error)
        return errors
