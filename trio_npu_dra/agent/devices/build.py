"""The devices of a ResourceSlice pool, made from offers; pure except for log lines.

Equal offers give equal devices, byte for byte. Unknown facts are absent. An attribute that the
API server would refuse is left out, because one bad attribute would lose the whole slice.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from trio_npu_dra.agent.devices.counters import build_counter_sets, consumption, without_counters
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.shares import with_shares
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.model import HEALTHY, Board, Chip
from trio_npu_dra.ascend.offers import Held, Offer, Standing
from trio_npu_dra.kit.api.objects import Device, DeviceAttribute, DeviceCapacity, DeviceTaint
from trio_npu_dra.kit.api.quantity import canonical_quantity
from trio_npu_dra.kit.pool.pool import PoolContent

log = logging.getLogger(__name__)

T = TypeVar("T")

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
    """The devices of all offers, and the counters from which they take.

    Where the API server keeps no counters, only whole NPUs are left.
    """
    offered = tuple(offered) if features.counters else without_counters(offered)
    left_out = (
        offer
        for offer in offered
        if offer.standing is Standing.LEAVING
        and policy.kept_taints(offer.health, features.taint_effects, leaving=True) is None
    )
    return PoolContent(
        devices=build_devices(
            offered, board, policy, features, shares=shares, shared_for_claims=shared_for_claims
        ),
        shared_counters=build_counter_sets(offered, left_out),
    )


def build_devices(
    offered: Iterable[Offer],
    board: Board,
    policy: TaintPolicy,
    features: ServerFeatures,
    *,
    shares: int = 0,
    shared_for_claims: Collection[str] = (),
) -> tuple[Device, ...]:
    """The devices of all offers, in their order.

    An offer that no pod may get is left out where the API server does not keep the taint that says
    so: a claim that holds it keeps it.

    Args:
        offered: What is handed out.
        board: Has the facts that all devices share.
        policy: What health does to pods.
        features: What the API server keeps.
        shares: How many shares a device is to have; 0 for whole devices (`devices.shares`).
        shared_for_claims: Keys of chips that this driver lets containers share while claims need
            it: they do not count as shared, so that no slice changes with each claim.
    """
    kept, shared = features.taint_effects, frozenset(shared_for_claims)
    version, die_policy = board.driver_version, board.multi_die_policy
    made = (
        (offer, _tainted(build_device(_lasting(offer), version, die_policy, shared), taints))
        for offer in offered
        if (
            taints := policy.kept_taints(
                offer.health, kept, leaving=offer.standing is Standing.LEAVING
            )
        )
        is not None
    )
    return tuple(with_shares(made, features, shares=shares))


def _lasting(offer: Offer) -> Offer:
    """The offer without what comes and goes and is not in its device: its holder, its health."""
    is_plain = offer.held is Held.NOT and offer.standing is Standing.OPEN
    if is_plain and all(chip.health == HEALTHY for chip in offer.chips):
        return offer
    chips = tuple(replace(chip, health=HEALTHY) for chip in offer.chips)
    return replace(offer, chips=chips, held=Held.NOT, standing=Standing.OPEN)


def _tainted(device: Device, taints: tuple[DeviceTaint, ...]) -> Device:
    return device.model_copy(update={"taints": taints}) if taints else device


# A fault of one chip, and a claim where chips are cut or shared, has all devices made again. A node
# has 8 to 64, or, where chips are cut for claims, a few hundred; each takes 12 KB.
@lru_cache(maxsize=512)
def build_device(
    offer: Offer,
    driver_version: str | None,
    multi_die_policy: str | None,
    shared_for_claims: frozenset[str],
) -> Device:
    """One offer as a device, without taints.

    Args:
        offer: What is handed out, whoever has it.
        driver_version: As the Ascend driver prints it.
        multi_die_policy: How A3 dies may be handed out.
        shared_for_claims: As `build_devices` has it.
    """

    def is_shared(chip: Chip) -> bool | None:
        return chip.device_share and chip.key not in shared_for_claims

    return Device(
        name=offer.name,
        attributes=_attributes(offer, driver_version, multi_die_policy, is_shared),
        capacity=_capacity(offer) or None,
        consumes_counters=consumption(offer.chips[0].name, offer.takes),
    )


def _attributes(
    offer: Offer,
    printed: str | None,
    multi_die_policy: str | None,
    is_shared: Callable[[Chip], bool | None],
) -> dict[str, DeviceAttribute]:
    """Facts of the chip; of several chips the equal ones, of a partition those true of it too.

    What names the chip, and what is for all of it, is not true of a partition: die id, logic id,
    PCI address, address in the super pod, share flag.
    """
    common = _Common(offer.chips)
    partition, whole = offer.partition, offer.partition is None
    strings = {
        fact_names.TYPE: offer.kind,
        fact_names.MODEL: common(lambda chip: chip.family),
        fact_names.CHIP_NAME: common(lambda chip: chip.chip_name),
        fact_names.PRODUCT_NAME: common(lambda chip: chip.product_name),
        fact_names.NPU_NAME: common(lambda chip: chip.npu_name),
        fact_names.UUID: common(lambda chip: chip.uuid) if whole else None,
        fact_names.PARENT_UUID: None if whole else common(lambda chip: chip.uuid),
        fact_names.TEMPLATE: partition.template if partition else None,
        fact_names.TOPOLOGY_GROUP: common(lambda chip: chip.topology_group),
        fact_names.MODULE: common(lambda chip: chip.module),
        fact_names.MULTI_DIE_POLICY: multi_die_policy,
        fact_names.STANDARD_PCI_BUS_ID: common(lambda chip: chip.pci_bus_id) if whole else None,
        fact_names.STANDARD_PCIE_ROOT: common(lambda chip: chip.pcie_root),
    }
    numa_node = common(lambda chip: chip.numa_node)
    numbers = {
        fact_names.PHYSICAL_ID: common(lambda chip: chip.physical_id),
        fact_names.LOGIC_ID: common(lambda chip: chip.logic_id) if whole else None,
        fact_names.CARD_ID: common(lambda chip: chip.card_id),
        fact_names.DEVICE_ID: common(lambda chip: chip.device_id),
        fact_names.NUMA_NODE: numa_node,
        fact_names.STANDARD_NUMA_NODE: numa_node,
        fact_names.SUPER_POD_ID: common(lambda chip: chip.super_pod_id),
        fact_names.SUPER_POD_SERVER_INDEX: common(lambda chip: chip.super_pod_server_index),
        fact_names.SUPER_POD_SDID: common(lambda chip: chip.super_pod_sdid) if whole else None,
    }
    attributes = {
        name: DeviceAttribute(string=value) for name, value in _fitting(strings).items()
    } | {name: DeviceAttribute(int_=value) for name, value in numbers.items() if value is not None}
    share = common(is_shared) if whole else None
    if share is not None:
        attributes[fact_names.DEVICE_SHARE] = DeviceAttribute(bool_=share)
    if printed and (version := semantic_version(printed)) is not None:
        attributes[fact_names.DRIVER_VERSION] = DeviceAttribute(version=version)
    elif printed:
        _warn_left_out(fact_names.DRIVER_VERSION, printed, "it is no semantic version")
    return dict(sorted(attributes.items()))


class _Common:
    """Reads a fact of some chips: None if it is not the same for all.

    Args:
        chips: One or more.
    """

    def __init__(self, chips: tuple[Chip, ...]) -> None:
        self._chips = chips

    def __call__(self, read: Callable[[Chip], T]) -> T | None:
        """The fact, if all chips have the same."""
        first = read(self._chips[0])
        return first if all(read(chip) == first for chip in self._chips) else None


def _fitting(strings: Mapping[str, str | None]) -> dict[str, str]:
    fitting = {}
    for name, value in strings.items():
        if value and len(value.encode()) > _VALUE_LIMIT:
            _warn_left_out(name, value, f"it has more than {_VALUE_LIMIT} bytes")
        elif value:
            fitting[name] = value
    return fitting


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
    """An Ascend driver version as strict semantic version, so that CEL can compare it.

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
