"""What a claim asks of this node, worked out from its allocation alone (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trio_npu_dra.claims.config import parse_config
from trio_npu_dra.errors import ClaimError, ClaimNotAllocated, ClaimUnavailable, UnknownDevice
from trio_npu_dra.kube.objects import (
    AllocationConfiguration,
    AllocationResult,
    DeviceAllocation,
    ResourceClaim,
)
from trio_npu_dra.kubelet.driver import ClaimRef
from trio_npu_dra.npu.model import Board, Chip

MAX_RESULTS = 32
"""Results of one allocation (resource.k8s.io/v1, AllocationResultsMaxSize)."""

_FROM_CLASS = "FromClass"
_ORIGINS = {_FROM_CLASS: "the DeviceClass", "FromClaim": "the ResourceClaim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDevice:
    """One NPU for a claim, once, however many requests it serves.

    Attributes:
        npu: The NPU as the Board has it.
        pool: The pool it was allocated from.
        requests: Names of the requests it serves, without subrequests, in order of the results.
        admin_access: Whether all those requests only look on, so that another claim may hold it.
    """

    npu: Chip
    pool: str
    requests: tuple[str, ...]
    admin_access: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan:
    """The NPUs of one claim, in order of the allocation's results."""

    ref: ClaimRef
    devices: tuple[PlannedDevice, ...]


def plan_claim(
    claim: ResourceClaim, ref: ClaimRef, *, driver_name: str, pool_name: str, board: Board
) -> ClaimPlan:
    """Work out the NPUs of *claim*; an unhealthy NPU is given out, its taint is the pod's choice.

    Args:
        claim: The claim as the API server has it.
        ref: The claim that the kubelet means.
        driver_name: Results of other drivers are theirs.
        pool_name: The one pool of this node.
        board: The NPUs of this node.

    Raises:
        ClaimNotAllocated: The claim was replaced, or has no result for this driver.
        UnknownDevice: A result names a device that this node does not have.
        InvalidOpaqueConfig: A config for this driver is wrong.
        ClaimUnavailable: The node's NPUs are not known yet.
        ClaimError: The allocation is larger than Kubernetes allows.
    """
    allocation = _allocation(claim, ref)
    results = [result for result in allocation.results if result.driver == driver_name]
    if not results:
        raise ClaimNotAllocated(f"the claim's allocation has no device of driver {driver_name}")
    _check_configs(allocation.config, results, driver_name)
    by_name: dict[str, list[AllocationResult]] = {}
    for result in results:
        by_name.setdefault(_checked_device(result, pool_name, board), []).append(result)
    return ClaimPlan(
        ref=ref,
        devices=tuple(_planned(board.by_name[name], of) for name, of in by_name.items()),
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


def _checked_device(result: AllocationResult, pool_name: str, board: Board) -> str:
    # A node has one pool. To skip a result of another one would start the pod with fewer NPUs than
    # it was given, to look its device up here would hand out a namesake.
    if result.pool != pool_name:
        raise UnknownDevice(
            f"device {result.device} is allocated from pool {result.pool}, "
            f"and this node serves only pool {pool_name}"
        )
    if not board.chips:
        raise ClaimUnavailable(
            f"no NPU of node {pool_name} is known yet: {result.device} must wait"
        )
    if result.device not in board.by_name:
        raise UnknownDevice(
            f"device {result.device} does not exist on node {pool_name} any more "
            f"(it has {', '.join(board.by_name)}): delete the pod to get another one"
        )
    return result.device


def _planned(npu: Chip, results: Sequence[AllocationResult]) -> PlannedDevice:
    return PlannedDevice(
        npu=npu,
        pool=results[0].pool,
        requests=tuple(dict.fromkeys(_base(result.request) for result in results)),
        admin_access=all(result.admin_access for result in results),
    )


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
