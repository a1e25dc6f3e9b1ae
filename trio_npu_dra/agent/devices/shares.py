"""Devices in shares, for several claims at once (KEP-5075, consumable capacity); pure.

Only schedulers count what allocations take of each capacity. The hardware does not divide a chip
among the containers that share it: each can use all of its memory and AI cores.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.offers import Held, Offer, OfferKind
from trio_npu_dra.kit.api.objects import CapacityPolicy, CapacityRange, Device, DeviceCapacity
from trio_npu_dra.kit.api.quantity import canonical_quantity, parse_quantity

log = logging.getLogger(__name__)

_DIVISIBLE = frozenset({OfferKind.NPU, OfferKind.MODULE})
"""Kinds of offers that have a share flag."""

_UNITS = {fact_names.MEMORY: 1 << 20}
"""The unit in which a capacity is counted, where that is not 1: DCMI tells memory in MiB."""


def held_as_published(offered: Iterable[Offer], *, shares: int) -> tuple[Offer, ...]:
    """The offers, held only where `with_shares` depends on it.

    Most nodes divide nothing into shares: there a claim that comes or goes changes no offer, and no
    device has to be made again.
    """
    if shares:
        return tuple(offered)
    return tuple(
        replace(offer, held=Held.NOT) if offer.held is Held.WHOLE else offer for offer in offered
    )


def with_shares(
    made: Iterable[tuple[Offer, Device]], features: ServerFeatures, *, shares: int
) -> Iterator[Device]:
    """The devices that can be published, each in so many shares; 0 leaves them whole.

    A device stays as it is held until it is released: schedulers do not compare whole allocations
    with shares. A device that is held as a whole is published undivided, and schedulers see it as
    taken. A device that is held by shares and is to be whole again is left out.
    """
    is_divided = shares > 0 and features.shares
    if shares and not is_divided:
        _warn_whole()
    left_out = []
    for offer, device in made:
        if is_divided and offer.held is not Held.WHOLE and offer.kind in _DIVISIBLE:
            yield divided(device, shares)
        elif offer.held is not Held.BY_SHARES:
            yield device
        else:
            left_out.append(device.name)
    if left_out:
        _warn_left_out(tuple(left_out))


def divided(device: Device, shares: int) -> Device:
    """The device with *shares* shares.

    A request that names no capacity takes one share, and an equal part of everything else, rounded
    down: so as many such requests fit as there are shares.
    """
    capacity = {
        name: part.model_copy(update={"request_policy": _equal_part(name, part, shares)})
        for name, part in device.capacity.items()
    }
    one = CapacityPolicy(default="1", valid_range=CapacityRange(min="1", step="1"))
    capacity[fact_names.SHARES] = DeviceCapacity(
        value=canonical_quantity(shares), request_policy=one
    )
    return device.model_copy(update={"allow_multiple_allocations": True, "capacity": capacity})


def _equal_part(name: str, part: DeviceCapacity, shares: int) -> CapacityPolicy:
    unit = _UNITS.get(name, 1)
    default = int(parse_quantity(part.value)) // shares // unit * unit
    return CapacityPolicy(
        default=canonical_quantity(default),
        valid_range=CapacityRange(min="0", step=canonical_quantity(unit)),
    )


@lru_cache(maxsize=1)
def _warn_whole() -> None:
    """Log once in a process that NPUs are not divided; pools are built again and again."""
    log.warning(
        "the API server does not keep allowMultipleAllocations of devices (feature gate "
        "DRAConsumableCapacity, on from Kubernetes 1.36): NPUs are published as a whole, in spite "
        "of --sharing=shares"
    )


@lru_cache(maxsize=256)
def _warn_left_out(names: tuple[str, ...]) -> None:
    """Log once in a process that devices are left out, because their shares are held."""
    log.warning(
        "devices are left out of the ResourceSlice until claims have released their shares: NPUs "
        "are published as a whole now",
        extra={"devices": names},
    )
