"""The devices of a ResourceSlice pool, made from offers; pure except for log lines.

Equal offers give equal devices, byte for byte. Unknown facts are absent. An attribute that the
API server would refuse is left out, because one bad attribute would lose the whole slice.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from trio_npu_dra.agent.devices.counters import build_counter_sets, consumption, without_counters
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.shares import with_shares
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.model import HEALTHY, PUBLISHED, Board
from trio_npu_dra.ascend.offers import Held, Offer, Standing
from trio_npu_dra.kit.api.objects import Device, DeviceAttribute, DeviceCapacity
from trio_npu_dra.kit.api.quantity import canonical_quantity
from trio_npu_dra.kit.pool import PoolContent

log = logging.getLogger(__name__)

_VALUE_LIMIT = 64
"""Bytes of a string or version attribute (resource.k8s.io/v1 DeviceAttributeMaxValueLength)."""


_NUMBER = re.compile(r"0|[1-9]\d*")
_PRE_RELEASE = re.compile(r"(rc|alpha|beta)", re.IGNORECASE)
_SEMVER = re.compile(  # semver.org, version 2.0.0
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def build_pool(
    offered: Iterable[Offer],
    board: Board,
    policy: TaintPolicy,
    features: ServerFeatures,
    *,
    shares: int = 0,
    shared_for_claims: Collection[str] = (),
) -> PoolContent:
    """The devices of all offers, in their order, and the counters from which they take.

    Where the API server keeps no counters, only whole NPUs are left. An offer that no pod may get
    is left out where the API server does not keep the taint that says so: a claim that holds it
    keeps it.

    Each device has *shares* shares; 0 leaves it whole. *shared_for_claims* has the keys of chips
    that this driver lets containers share while claims need it: they do not count as shared, so
    that no slice changes with each claim.
    """
    offered = tuple(offered) if features.counters else without_counters(offered)
    of_board = board.driver_version, board.multi_die_policy, frozenset(shared_for_claims)
    made: list[tuple[Offer, Device]] = []
    left_out: list[Offer] = []
    for offer in offered:
        is_leaving = offer.standing is Standing.LEAVING
        taints = policy.kept_taints(offer.health, features.taint_effects, leaving=is_leaving)
        if taints is not None:
            device = build_device(_lasting(offer), *of_board)
            made.append((offer, device.model_copy(update={"taints": taints}) if taints else device))
        elif is_leaving:
            left_out.append(offer)
    return PoolContent(
        devices=tuple(with_shares(made, features, shares=shares)),
        shared_counters=build_counter_sets(offered, left_out),
    )


def offer_attributes(
    offer: Offer, board: Board, shared_for_claims: Collection[str]
) -> Mapping[str, Any]:
    """The attributes of an offer's device as the API has them, for containers that have it."""
    of_board = board.driver_version, board.multi_die_policy, frozenset(shared_for_claims)
    device = build_device(_lasting(offer), *of_board)
    return {name: attribute.to_wire() for name, attribute in device.attributes.items()}


def _lasting(offer: Offer) -> Offer:
    """The offer without what changes and is not in its device: holder, health, addresses."""
    is_plain = offer.held is Held.NOT and offer.standing is Standing.OPEN
    if is_plain and all((chip.health, chip.network) == (HEALTHY, None) for chip in offer.chips):
        return offer
    chips = tuple(replace(chip, health=HEALTHY, network=None) for chip in offer.chips)
    return replace(offer, chips=chips, held=Held.NOT, standing=Standing.OPEN)


# A fault of one chip, and a claim where chips are cut or shared, has all devices made again. A node
# has 8 to 64, or, where chips are cut for claims, a few hundred; each takes 12 KB.
@lru_cache(maxsize=512)
def build_device(
    offer: Offer,
    driver_version: str | None,
    multi_die_policy: str | None,
    shared_for_claims: frozenset[str],
) -> Device:
    """One offer as a device, without taints; *driver_version* is as the Ascend driver prints it."""
    return Device(
        name=offer.name,
        attributes=_attributes(offer, driver_version, multi_die_policy, shared_for_claims),
        capacity=_capacity(offer),
        consumes_counters=consumption(offer.chips[0].name, offer.takes),
    )


def _attributes(
    offer: Offer,
    printed: str | None,
    multi_die_policy: str | None,
    shared_for_claims: frozenset[str],
) -> dict[str, DeviceAttribute]:
    """Facts of the chip; of several chips the equal ones, of a partition those true of it too.

    Facts that name the chip, or are of all of it, are not true of a partition: die id, logic id,
    PCI address, address in the super pod, share flag.
    """
    whole, partition = offer.partition is None, offer.partition
    values: dict[str, str | int | bool | None] = {
        name: _common(offer, field)
        for field, mark in PUBLISHED.items()
        if whole or not mark.of_whole
        for name in mark.names
    }
    values[fact_names.TYPE] = offer.kind
    values[fact_names.MULTI_DIE_POLICY] = multi_die_policy
    if partition is not None:
        values[fact_names.TEMPLATE] = partition.template
        values[fact_names.PARENT_UUID] = offer.chips[0].uuid
    else:
        shared = {chip.device_share and chip.key not in shared_for_claims for chip in offer.chips}
        values[fact_names.DEVICE_SHARE] = shared.pop() if len(shared) == 1 else None
    attributes = {name: made for name, value in values.items() if (made := _attribute(name, value))}
    if printed and (version := semantic_version(printed)) is not None:
        attributes[fact_names.DRIVER_VERSION] = DeviceAttribute(version=version)
    elif printed:
        _warn_left_out(fact_names.DRIVER_VERSION, printed, "it is no semantic version")
    return dict(sorted(attributes.items()))


def _common(offer: Offer, field: str) -> str | int | None:
    """A fact of the offer's chips, if all have the same."""
    first, *others = (getattr(chip, field) for chip in offer.chips)
    return first if all(other == first for other in others) else None


def _attribute(name: str, value: str | int | bool | None) -> DeviceAttribute | None:
    """None for what is unknown, and for a text that the API server would refuse."""
    if isinstance(value, bool):
        return DeviceAttribute(bool_=value)
    if isinstance(value, int):
        return DeviceAttribute(int_=value)
    if value and len(value.encode()) > _VALUE_LIMIT:
        _warn_left_out(name, value, f"it has more than {_VALUE_LIMIT} bytes")
        return None
    return DeviceAttribute(string=value) if value else None


def _capacity(offer: Offer) -> dict[str, DeviceCapacity]:
    amounts = {
        fact_names.AI_CORES: _sum(chip.ai_cores for chip in offer.chips),
        fact_names.MEMORY: _sum(chip.memory_bytes for chip in offer.chips),
    }
    if (partition := offer.usable) is not None:
        memory = partition.memory_mib
        amounts = {
            fact_names.AI_CORES: partition.ai_cores,
            fact_names.AI_CPUS: partition.ai_cpus,
            fact_names.MEMORY: memory if memory is None else memory << 20,
        }
    return {
        name: DeviceCapacity(value=canonical_quantity(amount))
        for name, amount in amounts.items()
        if amount is not None
    }


def _sum(amounts: Iterable[int | None]) -> int | None:
    """The sum of all; None if one is not known."""
    known = list(amounts)
    return sum(amount for amount in known if amount is not None) if None not in known else None


@lru_cache(maxsize=256)
def _warn_left_out(attribute: str, value: str, why: str) -> None:
    """Log once in a process that an attribute is left out; pools are built again and again."""
    log.warning(
        "attribute left out of the ResourceSlice",
        extra={"attribute": attribute, "value": value, "why": why},
    )


def semantic_version(printed: str) -> str | None:
    """An Ascend driver version as a strict semantic version, so that CEL can compare it.

    `24.1.rc2.b030` is `24.1.0-rc2.b030`: a candidate sorts before its release. What follows a
    third number is a build: `24.1.0.3` is `24.1.0+3`.

    Returns:
        `None` when the text does not fit these rules, or the API server would refuse the result.
    """
    parts = printed.split(".")
    numbers = 0
    while numbers < min(3, len(parts)) and _NUMBER.fullmatch(parts[numbers]):
        numbers += 1
    version, rest = parts[:numbers], parts[numbers:]
    candidate = printed
    if numbers >= 2 and not _SEMVER.fullmatch(printed):
        candidate = ".".join([*version, "0"][:3])
        if rest:
            candidate += ("-" if _PRE_RELEASE.match(rest[0]) else "+") + ".".join(rest)
    fits = _SEMVER.fullmatch(candidate) and len(candidate) <= _VALUE_LIMIT
    return candidate if fits else None
