"""What a claim has of a node: its results for one driver, checked before a driver acts on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from trio_npu_dra.kit.api.objects import AllocationResult, ResourceClaim
from trio_npu_dra.kit.base.errors import ClaimError, ClaimNotAllocated, NotFound, UnknownDevice

MAX_RESULTS: Final = 32
"""Results of one allocation (resource.k8s.io/v1, AllocationResultsMaxSize)."""


class ClaimReader(Protocol):
    """Reads claims; `client.KubeClient` is one."""

    async def get(
        self,
        kind: type[ResourceClaim],
        name: str,
        namespace: str | None = None,
        *,
        is_cached: bool = False,
    ) -> ResourceClaim:
        """Read one claim.

        Raises:
            NotFound: It does not exist.
            KubeError: Refused or unreachable.
        """
        ...


@dataclass(frozen=True, slots=True)
class ObservedReader:
    """A ClaimReader that shows others each claim that it reads: no read is for them alone.

    Attributes:
        reader: Reads the claims.
        observers: Called with each claim.
    """

    reader: ClaimReader
    observers: Sequence[Callable[[ResourceClaim], object]]

    async def get(
        self,
        kind: type[ResourceClaim],
        name: str,
        namespace: str | None = None,
        *,
        is_cached: bool = False,
    ) -> ResourceClaim:
        """Read one claim and show it; see `ClaimReader`."""
        claim = await self.reader.get(kind, name, namespace, is_cached=is_cached)
        for observer in self.observers:
            observer(claim)
        return claim


async def read_claim(reader: ClaimReader, name: str, namespace: str) -> ResourceClaim:
    """Read a claim that the kubelet wants prepared.

    Raises:
        ClaimNotAllocated: It does not exist.
        KubeError: The API server refused or is unreachable.
    """
    try:
        return await reader.get(ResourceClaim, name, namespace)
    except NotFound:
        raise ClaimNotAllocated("the claim does not exist any more") from None


def results_of(
    claim: ResourceClaim, *, uid: str, driver_name: str, pool_name: str
) -> tuple[AllocationResult, ...]:
    """The results of a claim's allocation for one driver on one node, at least one (pure).

    Args:
        claim: The claim as the API server has it.
        uid: The claim that the kubelet means.
        driver_name: The driver.
        pool_name: The driver's one pool on this node.

    Raises:
        ClaimNotAllocated: The claim was replaced, or has no result for this driver.
        UnknownDevice: A result is of another pool.
        ClaimError: The allocation is larger than Kubernetes allows.
    """
    meta = claim.metadata
    if meta.uid != uid:
        raise ClaimNotAllocated(
            f"the claim was replaced: the pod uses UID {uid}, "
            f"and {meta.namespace}/{meta.name} now has UID {meta.uid}"
        )
    if claim.status.allocation is None:
        raise ClaimNotAllocated("the claim is not allocated")
    every = claim.status.allocation.devices.results
    if len(every) > MAX_RESULTS:
        raise ClaimError(
            f"the claim's allocation has {len(every)} results, Kubernetes allows {MAX_RESULTS}"
        )
    results = tuple(result for result in every if result.driver == driver_name)
    if not results:
        raise ClaimNotAllocated(f"the claim's allocation has no device of driver {driver_name}")
    for result in results:
        # Without a result of another pool the pod would start with fewer devices than it was given;
        # with a device of that name in this pool it would get another one.
        if result.pool != pool_name:
            raise UnknownDevice(
                f"device {result.device} is allocated from pool {result.pool}, "
                f"and this node serves only pool {pool_name}"
            )
    return results


def base_request(request: str) -> str:
    """A result's request without its subrequest, as the kubelet knows it."""
    return request.partition("/")[0]
