"""What a search has handed out, in a form that is equal where nothing tells the devices apart.

Of sixteen NPUs there are 12,870 choices of eight, and where they are alike each leaves the same to
what comes after it: where one leads nowhere, none does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from trio_npu_dra.tools.cluster.inventory import DeviceId

Link = tuple[Hashable, ...]
"""What devices have in common: a counter set, or a value that only one of them may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """All that a search knows of a device.

    Attributes:
        facts: Equal for devices that are alike, apart from their links.
        links: What it takes of each.
    """

    facts: Hashable
    links: tuple[tuple[Link, Hashable], ...]


class Alike:
    """The devices of a search, in cells: what has a link is in the cell of all others with it.

    Cells are alike if they have the same devices in the same order, whatever their links are
    called, and as much of each link is left.
    """

    def __init__(self, known: Mapping[DeviceId, Traits], left: Mapping[Link, Hashable]) -> None:
        self._kinds: dict[DeviceId, int] = {}
        self._cells: dict[DeviceId, tuple[int, int]] = {}
        numbers: dict[Hashable, int] = {}  # kinds are compared often, and are large
        for at, cell in enumerate(_cells(known)):
            names: dict[Link, int] = {}
            for device in cell:
                links = [
                    (names.setdefault(link, len(names)), takes)
                    for link, takes in known[device].links
                ]
                kind = known[device].facts, tuple(links)
                self._kinds[device] = numbers.setdefault(kind, len(numbers))
            kinds = tuple(self._kinds[device] for device in cell)
            whole = kinds, tuple(left.get(link) for link in names)
            self._cells |= dict.fromkeys(cell, (at, numbers.setdefault(whole, len(numbers))))

    def state(self, given: Iterable[tuple[DeviceId, Hashable]]) -> State:
        """How things are after devices were given, each for some use."""
        uses: dict[DeviceId, Counter[Hashable]] = {}
        for device, use in given:
            uses.setdefault(device, Counter())[use] += 1
        devices = {
            device: (self._kinds[device], frozenset(counts.items()))
            for device, counts in uses.items()
        }
        found: dict[tuple[int, int], Counter[Hashable]] = {}
        for device, one in devices.items():
            found.setdefault(self._cells[device], Counter())[one] += 1
        cells = {cell: (cell[1], frozenset(counts.items())) for cell, counts in found.items()}
        return State(self._kinds, self._cells, devices, cells)


@dataclass(frozen=True, slots=True)
class State:
    """What devices were given for; `whole` is equal if what is left is alike."""

    _kinds: Mapping[DeviceId, int]
    _cells: Mapping[DeviceId, tuple[int, int]]
    _used: Mapping[DeviceId, Hashable]
    _used_cells: Mapping[tuple[int, int], Hashable]

    @property
    def whole(self) -> Hashable:
        """Of all devices."""
        return frozenset(Counter(self._used_cells.values()).items())

    def of(self, device: DeviceId) -> Hashable:
        """Of one device; equal for those of which it does not matter which is given next."""
        cell = self._cells[device]
        return self._used_cells.get(cell, cell[1]), self._used.get(device, self._kinds[device])


def _cells(known: Mapping[DeviceId, Traits]) -> list[tuple[DeviceId, ...]]:
    """The devices by what they are linked with, in their order."""
    cell_of: dict[DeviceId, int] = {device: at for at, device in enumerate(known)}
    first: dict[Link, DeviceId] = {}
    for device, traits in known.items():
        for link, _ in traits.links:
            one, other = cell_of[first.setdefault(link, device)], cell_of[device]
            if one != other:
                cell_of |= {at: one for at, cell in cell_of.items() if cell == other}
    cells: dict[int, list[DeviceId]] = {}
    for device, cell in cell_of.items():
        cells.setdefault(cell, []).append(device)
    return list(map(tuple, cells.values()))
