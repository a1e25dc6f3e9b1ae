"""Which NPUs reach each other over HCCS, Huawei's chip-to-chip link, without PCIe. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from trio_npu_dra.npu.model import ChipFamily

PhysicalIds = frozenset[int]

_910_RING_SIZE = 4


class Link(IntEnum):
    """How two chips are connected, as DCMI numbers it (the members that matter here).

    Older libraries for 910B use 6 for "unknown": it means SIO on A3 only.
    """

    HCCS = 3
    SIO = 6
    HCCS_SWITCHED = 7


_DOMAIN_LINKS: dict[ChipFamily, frozenset[int]] = {
    ChipFamily.ASCEND_910B: frozenset({Link.HCCS, Link.HCCS_SWITCHED}),
    ChipFamily.ASCEND_910_A3: frozenset({Link.HCCS, Link.HCCS_SWITCHED, Link.SIO}),
}

FAMILIES_WITH_LINKS = frozenset(_DOMAIN_LINKS)
"""Families whose driver can be asked how two chips are connected."""


def domains_by_links(family: ChipFamily, links: Mapping[tuple[int, int], int]) -> list[PhysicalIds]:
    """Chips that reach each other over one or more HCCS links; a chip without one is in none.

    Args:
        family: The chips' family, one of `FAMILIES_WITH_LINKS`.
        links: DCMI's link number by a pair of physical ids, each pair once.
    """
    domain_of: dict[int, set[int]] = {}
    for (one, other), link in links.items():
        if link in _DOMAIN_LINKS[family]:
            joined = domain_of.get(one, {one}) | domain_of.get(other, {other})
            domain_of.update(dict.fromkeys(joined, joined))
    return list({frozenset(domain) for domain in domain_of.values()})


def domains_of_910(physical_ids: Iterable[int]) -> list[PhysicalIds]:
    """The first 910 cannot be asked: its boards have rings of 0-3 and of 4-7."""
    rings: dict[int, set[int]] = {}
    for number in physical_ids:
        rings.setdefault(number // _910_RING_SIZE, set()).add(number)
    return [frozenset(ring) for ring in rings.values()]


def name_groups(domains: Iterable[PhysicalIds]) -> dict[int, str]:
    """Name of the topology group by physical id: `ring-0` has the lowest physical id."""
    ordered = sorted(domains, key=min)
    return {number: f"ring-{ring}" for ring, domain in enumerate(ordered) for number in domain}
