"""In which HCCS domains chips are. Pure.

HCCS is Huawei's link from chip to chip; chips without it reach each other over PCIe.
On Ascend 950 the unified bus (UB) is that link.
"""

from __future__ import annotations

from collections.abc import Iterable

from trio_npu_dra.ascend.dcmi.types import Link
from trio_npu_dra.ascend.model import Chip, ChipFamily, Links
from trio_npu_dra.ascend.traits import TRAITS

PhysicalIds = frozenset[int]


def topology_groups(chips: Iterable[Chip], links: Links) -> dict[int, str]:
    """Name of the HCCS domain by physical id; a chip that reaches no other is in none.

    `ring-0` has the lowest physical id. *chips* are all that are known, even if they do not answer
    now. Of a chip that is the only one of its family the board decides.
    """
    domains: list[PhysicalIds] = []
    by_family: dict[ChipFamily, list[Chip]] = {}
    for chip in chips:
        by_family.setdefault(chip.family, []).append(chip)
    for family, members in by_family.items():
        traits = TRAITS[family]
        ids = frozenset(chip.physical_id for chip in members)
        if traits.ring_size is not None:
            size = traits.ring_size
            starts = {number - number % size for number in ids}
            domains += [ids.intersection(range(start, start + size)) for start in starts]
        elif len(members) > 1:
            among = {pair: link for pair, link in links.items() if ids.issuperset(pair)}
            domains += domains_by_links(among, traits.domain_links)
        elif traits.has_hccs(members[0].board_id):
            domains.append(ids)
    ordered = sorted(domains, key=min)
    return {number: f"ring-{ring}" for ring, domain in enumerate(ordered) for number in domain}


def domains_by_links(links: Links, kinds: frozenset[Link]) -> list[PhysicalIds]:
    """Chips that reach each other over one or more links of *kinds*."""
    domain_of: dict[int, set[int]] = {}
    for (one, other), link in links.items():
        if link in kinds:
            joined = domain_of.get(one, {one}) | domain_of.get(other, {other})
            domain_of.update(dict.fromkeys(joined, joined))
    return list({frozenset(domain) for domain in domain_of.values()})
