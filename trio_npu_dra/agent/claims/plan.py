"""What a claim asks of this node, worked out from its allocation and the offers alone (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from trio_npu_dra.agent.config.effective import DEFAULT_CONFIG, EffectiveConfig, effective
from trio_npu_dra.agent.config.model import MAX_OF_CLAIM
from trio_npu_dra.agent.config.words import parse_config, show
from trio_npu_dra.agent.holds.entry import Allocated
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.kit.api.objects import (
    AllocationConfiguration,
    AllocationResult,
    DeviceAllocation,
    ResourceClaim,
)
from trio_npu_dra.kit.base.errors import (
    ClaimError,
    ClaimNotAllocated,
    ClaimUnavailable,
    InvalidOpaqueConfig,
    UnknownDevice,
)
from trio_npu_dra.kit.kubelet.driver import ClaimRef

MAX_RESULTS = 32
"""Results of one allocation (resource.k8s.io/v1, AllocationResultsMaxSize)."""

_SHOWN: Final = 16
"""Devices that an error lists at most."""

_FROM_CLASS = "FromClass"
_ORIGINS = {_FROM_CLASS: "DeviceClass", "FromClaim": "ResourceClaim"}


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
        InvalidOpaqueConfig: A config for this driver is wrong, or two contradict each other.
        ClaimError: The allocation is larger than Kubernetes allows.
    """
    devices = _allocation(claim, ref)
    results = [result for result in devices.results if result.driver == driver_name]
    if not results:
        raise ClaimNotAllocated(f"the claim's allocation has no device of driver {driver_name}")
    configs = _configs(devices.config, results, driver_name)
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
            config=configs[device],
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


def check_partitions(allocation: Iterable[Allocated], offers: Iterable[Offer]) -> None:
    """See that a claim has its partitions for itself, and for one container.

    Raises:
        ClaimError: It only looks on a partition that is cut on demand: there may be nothing to look
            on.
        InvalidOpaqueConfig: It wants to share one, which has no share flag.
    """
    partitions = {offer.name: offer.partition for offer in offers if offer.partition is not None}
    for given in allocation:
        partition = partitions.get(given.device)
        if partition is not None and given.config is not None and given.config.shared:
            raise InvalidOpaqueConfig(
                f"sharing.strategy=Shared is not possible for device {given.device}: the Ascend "
                "driver gives a vNPU to one container; ask for a whole NPU, or a partition for each"
            )
        if given.admin_access and partition is not None and partition.on_demand:
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
    if claim.status.allocation is None:
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
            f"(it has {_listed(by_name)}): delete the pod to get another one"
        )
    return by_name[device]


def _listed(names: Collection[str]) -> str:
    """The first names; where NPUs are cut there are hundreds."""
    shown = ", ".join(islice(names, _SHOWN))
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _configs(
    configs: Iterable[AllocationConfiguration],
    results: Sequence[AllocationResult],
    driver_name: str,
) -> Mapping[str, EffectiveConfig]:
    """What the configs come to for each device.

    Those of classes apply before those of the claim, each in the allocation's order, which is that
    of class and claim (`AllocationResult.config` in Kubernetes' scheduler). A device that several
    requests were given, as admin access can have it, gets the configs of them all.
    """
    ours = [
        (config.requests, parse_config(config.opaque.parameters, origin=origin))
        for config in sorted(configs, key=lambda config: config.source != _FROM_CLASS)
        if config.opaque is not None and config.opaque.driver == driver_name
        if any(_is_for(config.requests, result.request) for result in results)
        for origin in [_ORIGINS.get(config.source, config.source)]
    ]
    if not ours:
        return {result.device: DEFAULT_CONFIG for result in results}
    requests: dict[str, list[str]] = {}
    for result in results:
        requests.setdefault(result.device, []).append(result.request)
    found = {
        device: effective(
            config for names, config in ours if any(_is_for(names, request) for request in of)
        )
        for device, of in requests.items()
    }
    _check_values(found, requests)
    _check_size(found.values())
    return found


def _is_for(names: Sequence[str], request: str) -> bool:
    """Whether a config that names these requests is for a result's one, a subrequest perhaps."""
    return not names or request in names or _base(request) in names


def _check_size(configs: Iterable[EffectiveConfig]) -> None:
    """A record that is too large could not be read again."""
    texts = [text for config in configs for variable in config.env for text in variable]
    size = sum(len(text.encode()) for text in texts)
    if size > MAX_OF_CLAIM:
        raise InvalidOpaqueConfig(
            f"the variables of env for all devices of the claim have {size} bytes together: "
            f"write at most {MAX_OF_CLAIM}"
        )


def _check_values(
    configs: Mapping[str, EffectiveConfig], requests: Mapping[str, Sequence[str]]
) -> None:
    """A container can use several requests, and then it would get one of two values, unsaid."""
    first: dict[str, tuple[str, str]] = {}
    for device, config in configs.items():
        told = [(f"env {name}", value) for name, value in config.env]
        for name, value in (*told, ("visibleDevices", config.visible_devices)):
            here = _base(requests[device][0])
            there, other = first.setdefault(name, (here, value))
            if other != value:
                raise InvalidOpaqueConfig(
                    f"the configs of requests {there} and {here} set {name} to {show(other)} "
                    f"and {show(value)}, and a container that uses both can have one only: write "
                    "one value for both, or make two claims"
                )


def _base(request: str) -> str:
    """The kubelet knows requests without the chosen subrequest."""
    return request.partition("/")[0]
