"""What a claim asks of this node, worked out from its allocation and the offers alone (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trio_npu_dra.claims.config import parse_config
from trio_npu_dra.errors import ClaimError, ClaimNotAllocated, ClaimUnavailable, UnknownDevice
from trio_npu_dra.holds.entry import Allocated
from trio_npu_dra.kube.objects import (
    AllocationConfiguration,
    AllocationResult,
    DeviceAllocation,
    ResourceClaim,
)
from trio_npu_dra.kubelet.driver import ClaimRef
from trio_npu_dra.npu.offers import Offer

MAX_RESULTS = 32
"""Results of one allocation (resource.k8s.io/v1, AllocationResultsMaxSize)."""

_FROM_CLASS = "FromClass"
_ORIGINS = {_FROM_CLASS: "the DeviceClass", "FromClaim": "the ResourceClaim"}


def allocation_of(
    claim: ResourceClaim, ref: ClaimRef, *, driver_name: str, pool_name: str
) -> tuple[Allocated, ...]:
    """What *claim* was given of this node.

    A device that several requests share is there once for each kind of access to it, and for each
    share of it, in order of the allocation's results.

    Args:
        claim: The claim as the API server has it.
        ref: The claim that the kubelet means.
        driver_name: Results of other drivers are theirs.
        pool_name: The one pool of this node.

    Raises:
        ClaimNotAllocated: The claim was replaced, or has no result for this driver.
        UnknownDevice: A result is of another pool.
        InvalidOpaqueConfig: A config for this driver is wrong.
        ClaimError: The allocation is larger than Kubernetes allows.
    """
    devices = _allocation(claim, ref)
    results = [result for result in devices.results if result.driver == driver_name]
    if not results:
        raise ClaimNotAllocated(f"the claim's allocation has no device of driver {driver_name}")
    _check_configs(devices.config, results, driver_name)
    by_device: dict[tuple[str, bool, str | None], list[AllocationResult]] = {}
    for result in results:
        _check_pool(result, pool_name)
        what = (result.device, bool(result.admin_access), result.share_id)
        by_device.setdefault(what, []).append(result)
    return tuple(
        Allocated(
            requests=tuple(dict.fromkeys(_base(result.request) for result in of)),
            pool=pool_name,
            device=device,
            admin_access=admin_access,
            share_id=share_id,
        )
        for (device, admin_access, share_id), of in by_device.items()
    )


def offers_of(
    allocation: Iterable[Allocated],
    *,
    pool_name: str,
    by_name: Mapping[str, Offer],
    gaps: Sequence[str] = (),
) -> tuple[Offer, ...]:
    """The offers that were allocated, each once; unhealthy ones too, which is the pod's choice.

    Args:
        allocation: What a claim was given.
        pool_name: The pool of this node, for words.
        by_name: The offers of this node; empty if its chips are not known yet.
        gaps: Why some of them may not be known yet, in words.

    Raises:
        UnknownDevice: This node does not have such a device.
        ClaimUnavailable: The node's chips are not known yet, or not all of them.
    """
    return tuple(
        _offer(device, by_name, pool_name, gaps)
        for device in dict.fromkeys(given.device for given in allocation)
    )


def refuse_to_look_on_pieces(allocation: Iterable[Allocated], offers: Iterable[Offer]) -> None:
    """See that a claim has for itself what is cut for it.

    Raises:
        ClaimError: It only looks on: there may be nothing to look on.
    """
    pieces = {offer.name for offer in offers if offer.piece and offer.piece.on_demand}
    for given in allocation:
        if given.admin_access and given.device in pieces:
            raise ClaimError(
                f"device {given.device} is cut for the claim that gets it, so admin access to it "
                "is not possible: ask for admin access to the whole NPU"
            )


def _allocation(claim: ResourceClaim, ref: ClaimRef) -> DeviceAllocation:
    if claim.metadata.uid != ref.uid:
        raise ClaimNotAllocated(
            f"the claim was replaced: the pod uses UID {ref.uid}, "
            f"and {ref.namespace}/{ref.name} now has UID {claim.metadata.uid}"
        )
    if claim.status is None or claim.status.allocation is None:
        raise ClaimNotAllocated("the claim is not allocated")
    devices = claim.status.allocation.devices
    if len(devices.results) > MAX_RESULTS:
        raise ClaimError(
            f"the claim's allocation has {len(devices.results)} results, "
            f"Kubernetes allows {MAX_RESULTS}"
        )
    return devices


def _check_pool(result: AllocationResult, pool_name: str) -> None:
    # A node has one pool. To skip a result of another one would start the pod with fewer NPUs than
    # it was given, to look its device up here would hand out a namesake.
    if result.pool != pool_name:
        raise UnknownDevice(
            f"device {result.device} is allocated from pool {result.pool}, "
            f"and this node serves only pool {pool_name}"
        )


def _offer(device: str, by_name: Mapping[str, Offer], pool_name: str, gaps: Sequence[str]) -> Offer:
    if not by_name:
        reason = f" ({'; '.join(gaps)})" if gaps else ""
        raise ClaimUnavailable(
            f"no NPU of node {pool_name} is known yet{reason}: {device} must wait"
        )
    if device not in by_name and gaps:
        raise ClaimUnavailable(
            f"device {device} of node {pool_name} is not known, and may be one that does not "
            f"answer yet ({'; '.join(gaps)}): it must wait"
        )
    if device not in by_name:
        raise UnknownDevice(
            f"device {device} does not exist on node {pool_name} any more "
            f"(it has {', '.join(by_name)}): delete the pod to get another one"
        )
    return by_name[device]


def _check_configs(
    configs: Iterable[AllocationConfiguration],
    results: Sequence[AllocationResult],
    driver_name: str,
) -> None:
    """Refuse what we cannot do, class before claim, as the configs would apply."""
    requests = {name for result in results for name in (result.request, _base(result.request))}
    for config in sorted(configs, key=lambda config: config.source != _FROM_CLASS):
        if config.opaque is None or config.opaque.driver != driver_name:
            continue
        if not config.requests or not requests.isdisjoint(config.requests):
            origin = _ORIGINS.get(config.source, config.source)
            parse_config(config.opaque.parameters, origin=origin)


def _base(request: str) -> str:
    """The kubelet knows requests without the chosen subrequest."""
    return request.partition("/")[0]
