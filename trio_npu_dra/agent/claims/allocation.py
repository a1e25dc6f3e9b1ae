"""What a claim asks of this node: from its allocation and the offers alone. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from trio_npu_dra.agent.config.model import DEFAULT_CONFIG, MAX_OF_CLAIM, EffectiveConfig, effective
from trio_npu_dra.agent.config.refusals import parse_config, show
from trio_npu_dra.agent.holds.entry import Allocated
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.kit.api.claims import base_request, results_of
from trio_npu_dra.kit.api.objects import (
    AllocationConfiguration,
    AllocationResult,
    ResourceClaim,
)
from trio_npu_dra.kit.base.errors import (
    ClaimError,
    ClaimUnavailable,
    InvalidOpaqueConfig,
    UnknownDevice,
)
from trio_npu_dra.kit.kubelet.driver import ClaimRef

_SHOWN: Final = 16
"""At most so many devices of a node in an error: a node of partitions has hundreds."""

_FROM_CLASS = "FromClass"
_ORIGINS = {_FROM_CLASS: "DeviceClass", "FromClaim": "ResourceClaim"}


def allocation_of(
    claim: ResourceClaim, ref: ClaimRef, *, driver_name: str, pool_name: str
) -> tuple[Allocated, ...]:
    """The devices of this node in a claim's allocation, in order of its results.

    A device of several requests is there once for each kind of access, and for each share.

    Args:
        claim: The claim as the API server has it.
        ref: The claim that the kubelet means.
        driver_name: The driver of our results.
        pool_name: The one pool of this node.

    Raises:
        InvalidOpaqueConfig: A config for this driver is wrong, or two contradict each other.
        ClaimError: As `results_of`.
    """
    results = results_of(claim, uid=ref.uid, driver_name=driver_name, pool_name=pool_name)
    assert claim.status.allocation is not None  # it has results
    configs = _configs(claim.status.allocation.devices.config, results, driver_name)
    requests: dict[tuple[str, bool, str | None], dict[str, None]] = {}
    for result in results:
        access = (result.device, bool(result.admin_access), result.share_id)
        requests.setdefault(access, {})[base_request(result.request)] = None
    return tuple(
        Allocated(
            requests=tuple(names),
            pool=pool_name,
            device=device,
            admin_access=admin_access,
            share_id=share_id,
            config=configs[device],
        )
        for (device, admin_access, share_id), names in requests.items()
    )


def offers_of(
    allocation: Iterable[Allocated],
    *,
    pool_name: str,
    by_name: Mapping[str, Offer],
    gaps: Sequence[str],
) -> tuple[Offer, ...]:
    """The allocated offers, each once; unhealthy ones too, which pods may tolerate.

    Args:
        allocation: The claim's devices.
        pool_name: The pool of this node, for messages.
        by_name: The offers of this node; empty if its chips are not known yet.
        gaps: Why the offers may lack some, as text.

    Raises:
        UnknownDevice: This node does not have such a device.
        ClaimUnavailable: The node's chips are not known yet, or not all of them.
    """
    found: dict[str, Offer] = {}
    reason = "; ".join(gaps)
    for device in (given.device for given in allocation):
        if device in by_name:
            found[device] = by_name[device]
        elif not by_name:
            raise ClaimUnavailable(
                f"no NPU of node {pool_name} is known yet{f' ({reason})' if gaps else ''}: "
                f"{device} must wait"
            )
        elif gaps:
            raise ClaimUnavailable(
                f"device {device} of node {pool_name} is not known, and may be one that does not "
                f"answer yet ({reason}): it must wait"
            )
        else:
            shown = ", ".join(islice(by_name, _SHOWN))
            more = f" and {len(by_name) - _SHOWN} more" if len(by_name) > _SHOWN else ""
            raise UnknownDevice(
                f"device {device} does not exist on node {pool_name} any more "
                f"(it has {shown}{more}): delete the pod to get another one"
            )
    return tuple(found.values())


def check_partitions(
    allocation: Iterable[Allocated], offers: Sequence[Offer], held: Container[int | None] = ()
) -> None:
    """Refuse what partitions cannot do; *held* are the vNPUs that claims and pods have.

    Raises:
        ClaimError: Admin access to a partition that is cut on demand, and may not exist.
        ClaimUnavailable: A container uses the partition, and nobody has it.
        InvalidOpaqueConfig: Sharing of a partition, which has no share flag.
    """
    for offer in offers:
        if offer.partition and offer.is_used and offer.partition.vnpu not in held:
            raise ClaimUnavailable(f"device {offer.name} must wait: a container uses its vNPU")
    partitions = {offer.name: offer.partition for offer in offers if offer.partition is not None}
    for given in allocation:
        partition = partitions.get(given.device)
        if partition is not None and given.config.shared:
            raise InvalidOpaqueConfig(
                f"sharing.strategy=Shared is not possible for device {given.device}: the Ascend "
                "driver gives a vNPU to one container; ask for a whole NPU, or a partition for each"
            )
        if given.admin_access and partition is not None and partition.on_demand:
            raise ClaimError(
                f"device {given.device} is cut for the claim that gets it, so admin access to it "
                "is not possible: ask for admin access to the whole NPU"
            )


def _configs(
    configs: Iterable[AllocationConfiguration],
    results: Sequence[AllocationResult],
    driver_name: str,
) -> Mapping[str, EffectiveConfig]:
    """The effective config of each device.

    Configs of classes apply before those of the claim, each in the allocation's order, which is
    that of class and claim (`AllocationResult.config` in Kubernetes' scheduler). A device of
    several requests, which admin access makes possible, gets the configs of all of them.
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
    texts = [text for config in found.values() for variable in config.env for text in variable]
    size = sum(len(text.encode()) for text in texts)
    if size > MAX_OF_CLAIM:  # the record could not be read again
        raise InvalidOpaqueConfig(
            f"the variables of env for all devices of the claim have {size} bytes together: "
            f"write at most {MAX_OF_CLAIM}"
        )
    return found


def _is_for(names: Sequence[str], request: str) -> bool:
    """Whether a config for these requests applies to *request*, which may be a subrequest."""
    return not names or request in names or base_request(request) in names


def _check_values(
    configs: Mapping[str, EffectiveConfig], requests: Mapping[str, Sequence[str]]
) -> None:
    """Refuse two values of one variable: a container of both requests would get either of them."""
    first: dict[str, tuple[str, str]] = {}
    for device, config in configs.items():
        values = [(f"env {name}", value) for name, value in config.env]
        for name, value in (*values, ("visibleDevices", config.visible_devices)):
            here = base_request(requests[device][0])
            there, other = first.setdefault(name, (here, value))
            if other != value:
                raise InvalidOpaqueConfig(
                    f"the configs of requests {there} and {here} set {name} to {show(other)} "
                    f"and {show(value)}, and a container that uses both can have one only: write "
                    "one value for both, or make two claims"
                )
