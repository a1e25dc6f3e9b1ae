"""Which of the free devices a container had best get; pure.

Best is, in this order: few cards, few HCCS domains, few NUMA nodes, few cards and then few domains
that are broken, which means that a part of their chips is free; then the lowest chips, so that
equal questions have equal answers. Of devices that are parts of chips the same rules choose few
chips, and fill chips in use, the fullest first: free ones can move, or serve many shares.

The choice is exact. Every cost except the count of NUMA nodes is additive over cards and domains.
So for each set of NUMA nodes one pass over the cards keeps the best choice for each count of chips.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

from trio_npu_dra.ascend.model import Chip

_NOTHING: Final = (0, 0, 0, 0, 0)
_NUMA_LIMIT: Final = 8
"""So many NUMA nodes are tried in all subsets; more are tried only together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a device is."""

    number: int  # the chip's physical id
    domain: str  # the HCCS domain; the card where a chip is in none
    card: int  # where devices are parts of chips, the chip
    numa_node: int | None  # None if unknown
    part: int | None = None  # its number, if it is a part of the chip


_Cost: TypeAlias = tuple[int, int, int, int, int]
"""Cards used, domains used, cards broken, domains broken, and the chips themselves."""
_Best: TypeAlias = dict[int, _Cost]
"""The best choice of each size."""


def place_of(chip: Chip, part: int | None = None) -> Location:
    """Where a chip is, or one of its parts."""
    return Location(
        number=chip.physical_id,
        domain=chip.topology_group or f"card-{chip.card_id}",
        card=chip.card_id if part is None else chip.physical_id,
        numa_node=chip.numa_node,
        part=part,
    )


def preferred(
    places: Mapping[str, Location], available: Collection[str], needed: Collection[str], size: int
) -> tuple[str, ...]:
    """The *size* ids that a container had best get, the lowest chip first; of parts the fullest.

    Returns:
        The ids of *available* devices, the *needed* ones among them, in the order of chips; empty
        if there is no such choice.
    """
    free = {id_: places[id_] for id_ in {*available, *needed} & places.keys()}
    parts = Counter(place.number for place in free.values())

    def order(id_: str) -> tuple[int, int, int]:
        place = free[id_]
        is_whole = place.part is None
        return 0 if is_whole else parts[place.number], place.number, place.part or 0

    ids, must = sorted(free, key=order), set(needed)
    if not must <= free.keys() or not len(must) <= size <= len(ids):
        return ()
    choices = _Choices(places, ids, must, size)
    nodes = sorted(
        {place.numa_node for place in free.values()}, key=lambda node: (node is None, node)
    )
    best = choices.best_near(nodes)
    assert best is not None, "all NUMA nodes together allow a choice"
    cards, domains = best[:2]
    for count in range(1, len(nodes) if len(nodes) <= _NUMA_LIMIT else 0):
        found = [choices.best_near(some) for some in combinations(nodes, count)]
        best = min([best, *filter(None, found)])
        if best[:3] == (cards, domains, count):
            break  # fewer cards or domains are not possible near more nodes either
    return tuple(id_ for id_, bit in choices.bits.items() if -best[-1] & bit)


class _Choices:
    """The choices of *size* among free ids, with those that must be chosen.

    The ids are in the order in which equally good ones are chosen.
    """

    def __init__(
        self, places: Mapping[str, Location], ids: Sequence[str], must: Collection[str], size: int
    ) -> None:
        self._places = places
        self._must = must
        self._size = size
        # The first id has the highest bit, so the larger number has the lower chips.
        self.bits = {id_: 1 << (len(ids) - 1 - index) for index, id_ in enumerate(ids)}
        self._domain_sizes = Counter(place.domain for place in places.values())
        self._card_sizes = Counter((place.domain, place.card) for place in places.values())
        self._domains: dict[str, dict[int, list[str]]] = {}  # free ids by domain and card
        for id_ in ids:
            cards = self._domains.setdefault(places[id_].domain, {})
            cards.setdefault(places[id_].card, []).append(id_)

    def best_near(self, numa_nodes: Collection[int | None]) -> tuple[int, ...] | None:
        """How good the best choice near these NUMA nodes is, and which; None if there is none."""
        allowed = {id_ for id_ in self.bits if self._places[id_].numa_node in numa_nodes}
        if not allowed.issuperset(self._must) or len(allowed) < self._size:
            return None
        best: _Best = {0: _NOTHING}
        for domain, cards in self._domains.items():
            here: _Best = {0: _NOTHING}
            for card, ids in cards.items():
                size = self._card_sizes[domain, card]
                here = _joined(here, self._of_card(ids, size, allowed), self._size)
            free, size = sum(map(len, cards.values())), self._domain_sizes[domain]
            of_domain: _Best = {
                count: (used, int(count > 0), broken, int(0 < free - count < size), chips)
                for count, (used, _, broken, _, chips) in here.items()
            }
            best = _joined(best, of_domain, self._size)
        used, domains, *rest = best[self._size]
        return (used, domains, len(numa_nodes), *rest)

    def _of_card(self, ids: Sequence[str], size: int, allowed: Collection[str]) -> _Best:
        """The best choice of each count among the free ids of a card with so many devices."""
        must = [id_ for id_ in ids if id_ in self._must]
        rest = [id_ for id_ in ids if id_ in allowed and id_ not in self._must]
        best: _Best = {}
        for more in range(min(len(rest), self._size - len(must)) + 1):
            chosen = [*must, *rest[:more]]
            broken = int(0 < len(ids) - len(chosen) < size)
            chips = -sum(self.bits[id_] for id_ in chosen)
            best[len(chosen)] = (int(bool(chosen)), 0, broken, 0, chips)
        return best


def _joined(one: _Best, other: _Best, limit: int) -> _Best:
    """The best choices of both together, up to a size."""
    best: _Best = {}
    for count, cost in one.items():
        for more, cost_more in other.items():
            total = count + more
            if total <= limit:
                a, b, c, d, e = (left + right for left, right in zip(cost, cost_more, strict=True))
                whole = (a, b, c, d, e)
                best[total] = min(best.get(total, whole), whole)
    return best
