"""Which of the free devices a container had best get; pure.

A greedy choice: within one HCCS domain if one has enough free devices, there near one NUMA node,
there on one card. Of several groups with enough the one with the fewest free devices is taken, so
that whole ones stay whole; where none has enough, the largest is taken first. Of devices that are
parts of chips, the fullest chips are filled: free ones can move, or serve many shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from trio_npu_dra.ascend.model import Chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a device is."""

    number: int  # the chip's physical id
    domain: str  # the HCCS domain; the card where a chip is in none
    card: int  # where devices are parts of chips, the chip
    numa_node: int | None  # None if unknown
    part: int | None = None  # its number, if it is a part of the chip


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

    must = {*needed}
    if not must <= free.keys() or not len(must) <= size <= len(free):
        return ()
    near = [free[id_] for id_ in must]
    rest = [free[id_] for id_ in sorted(free.keys() - must, key=order)]
    chosen = {*near, *_closest(rest, size - len(must), near, ("domain", "numa_node", "card"))}
    return tuple(sorted((id_ for id_, place in free.items() if place in chosen), key=order))


def _closest(
    places: Sequence[Location], count: int, near: Collection[Location], levels: Sequence[str]
) -> Sequence[Location]:
    """*count* of these places, in groups that are taken one after the other, level by level."""
    if not levels:
        return places[:count]
    group_of = attrgetter(levels[0])
    groups: dict[object, list[Location]] = {}
    for place in places:
        groups.setdefault(group_of(place), []).append(place)
    begun = {*map(group_of, near)}
    found: list[Location] = []
    while (left := count - len(found)) > 0:

        def rank(key: object, left: int = left) -> tuple[bool, bool, int]:
            size = len(groups[key])
            return key not in begun, size < left, size if size >= left else -size

        best = min(groups, key=rank)  # of equal ones the first
        members = groups.pop(best)
        found += _closest(members, min(left, len(members)), near, levels[1:])
    return found
