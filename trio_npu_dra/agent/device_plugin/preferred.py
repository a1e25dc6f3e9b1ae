"""Which devices a container had best get of those that are free; pure.

Best is, in this order: few cards, few HCCS domains, few NUMA nodes, few cards and then few domains
that are broken, which means that a part of their chips is free. Of equally good choices the one
with the lowest chips is taken, so that the same question has the same answer.

Of parts of chips the same rules make few chips, and no chip broken that nobody uses yet: chips in
use are filled first, the fullest of equally good ones. So chips stay free as long as possible,
which can then move, or be had by a pod with many shares. (Huawei's device plugin has no preference.
Its scheduler fills NPUs too.)

The choice is exact. Every cost except the count of NUMA nodes is additive over cards and domains.
So for each set of NUMA nodes one pass over the cards keeps the best choice for each count of chips.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

from trio_npu_dra.ascend.model import Chip

_NOTHING: Final = (0, 0, 0, 0, 0)
_NUMA_LIMIT: Final = 8
"""NUMA nodes of which all subsets are tried; of more, only all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a device is.

    Attributes:
        number: Its chip's physical id.
        domain: What its chips reach each other in: the HCCS domain, else the card.
        card: The card; the chip where devices are parts of chips.
        numa_node: The NUMA node; None if unknown.
        part: Which part of its chip it is; None for all of it.
    """

    number: int
    domain: str
    card: int
    numa_node: int | None
    part: int | None = None


_Cost: TypeAlias = tuple[int, int, int, int, int]
"""Cards used, domains used, cards broken, domains broken, and the chips themselves."""
_Card: TypeAlias = tuple[str, int]
"""A card in its domain."""
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
    """The ids that a container had best get, the lowest chip first; of parts the fullest chip.

    Args:
        places: Where each device of the resource is.
        available: Ids of those that are free; others that are not in *places* are not chosen.
        needed: Those of them that must be chosen.
        size: How many are wanted.

    Returns:
        The ids, in the order of chips; empty if there is no such choice.
    """
    ids = _in_order({id_: places[id_] for id_ in {*available, *needed} & places.keys()})
    must = [id_ for id_ in ids if id_ in set(needed)]
    if len(must) < len(set(needed)) or not len(must) <= size <= len(ids):
        return ()
    nodes = sorted({places[id_].numa_node for id_ in ids}, key=lambda node: (node is None, node))
    best = _near(places, ids, must, nodes, size)
    assert best is not None, "all NUMA nodes together allow a choice"
    cards, domains = best[:2]
    for count in range(1, len(nodes) if len(nodes) <= _NUMA_LIMIT else 0):
        found = [_near(places, ids, must, some, size) for some in combinations(nodes, count)]
        best = min([best, *filter(None, found)])
        if best[:3] == (cards, domains, count):
            break  # fewer cards or domains are not possible near more nodes either
    return tuple(id_ for bit, id_ in _bits(ids) if -best[-1] & bit)


def _in_order(free: Mapping[str, Location]) -> list[str]:
    """Ids as they are to be chosen of equally good ones."""
    parts = Counter(place.number for place in free.values())

    def order(id_: str) -> tuple[int, int, int]:
        place = free[id_]
        if place.part is None:
            return 0, place.number, 0
        return parts[place.number], place.number, place.part

    return sorted(free, key=order)


def _near(
    places: Mapping[str, Location],
    ids: Sequence[str],
    must: Sequence[str],
    numa_nodes: Collection[int | None],
    size: int,
) -> tuple[int, ...] | None:
    """How good the best choice near some NUMA nodes is, and which; None if there is none."""
    cost = _Choice(places, ids, must, numa_nodes, size).best()
    if cost is None:
        return None
    cards, domains, *rest = cost
    return (cards, domains, len(numa_nodes), *rest)


def _bits(ids: Sequence[str]) -> Iterator[tuple[int, str]]:
    """A bit for each id, the highest for the first: the larger number has the lower chips."""
    return ((1 << (len(ids) - 1 - index), id_) for index, id_ in enumerate(ids))


class _Choice:
    """A choice among the devices near some NUMA nodes.

    Args:
        places: Where each device of the resource is.
        ids: Those that are free, in the order in which equally good ones are chosen.
        must: Those of them that must be chosen.
        numa_nodes: NUMA nodes that may be used.
        size: How many are wanted.
    """

    def __init__(
        self,
        places: Mapping[str, Location],
        ids: Sequence[str],
        must: Collection[str],
        numa_nodes: Collection[int | None],
        size: int,
    ) -> None:
        self._size = size
        self._must = set(must)
        self._allowed = {id_ for id_ in ids if places[id_].numa_node in numa_nodes}
        self._bit = {id_: bit for bit, id_ in _bits(ids)}
        self._sizes = Counter(place.domain for place in places.values())
        self._card_sizes = Counter((place.domain, place.card) for place in places.values())
        self._domains: dict[str, dict[int, list[str]]] = {}
        for id_ in ids:
            cards = self._domains.setdefault(places[id_].domain, {})
            cards.setdefault(places[id_].card, []).append(id_)

    def best(self) -> _Cost | None:
        """The best choice; None if there is none."""
        if not self._must <= self._allowed or len(self._allowed) < self._size:
            return None
        best: _Best = {0: _NOTHING}
        for domain, cards in self._domains.items():
            best = _joined(best, self._of_domain(domain, cards), self._size)
        return best.get(self._size)

    def _of_domain(self, domain: str, cards: Mapping[int, Sequence[str]]) -> _Best:
        best: _Best = {0: _NOTHING}
        free = sum(map(len, cards.values()))
        for card, ids in cards.items():
            best = _joined(best, self._of_card((domain, card), ids), self._size)
        return {
            count: (
                cards_used,
                int(count > 0),
                broken_cards,
                int(0 < free - count < self._sizes[domain]),
                chips,
            )
            for count, (cards_used, _, broken_cards, _, chips) in best.items()
        }

    def _of_card(self, card: _Card, ids: Sequence[str]) -> _Best:
        must = [id_ for id_ in ids if id_ in self._must]
        rest = [id_ for id_ in ids if id_ in self._allowed and id_ not in self._must]
        best: _Best = {}
        for more in range(min(len(rest), self._size - len(must)) + 1):
            chosen = [*must, *rest[:more]]
            broken = int(0 < len(ids) - len(chosen) < self._card_sizes[card])
            chips = -sum(self._bit[id_] for id_ in chosen)
            best[len(chosen)] = (int(bool(chosen)), 0, broken, 0, chips)
        return best


def _joined(one: _Best, other: _Best, limit: int) -> _Best:
    """The best of both together, up to a size."""
    best: _Best = {}
    for count, cost in one.items():
        for more, cost_more in other.items():
            total = count + more
            if total <= limit:
                a, b, c, d, e = (left + right for left, right in zip(cost, cost_more, strict=True))
                whole = (a, b, c, d, e)
                best[total] = min(best.get(total, whole), whole)
    return best
