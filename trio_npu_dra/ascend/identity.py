"""Facts that tell chips apart: of two chips that give one value, neither is known by it. Pure.

Faults, share flags, partitions and claims go by these facts. `dcmi.types.is_blank` tells values
that no chip has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final

from trio_npu_dra.ascend.model import Chip


@dataclass(frozen=True, slots=True)
class _Fact:
    """A fact that no two owners have the same value of.

    Attributes:
        words: Its name, for people.
        values: A chip's values of it.
        fields: The chip's fields that go with it.
        owner: Whose it is; the chips of a Duo have one PCI address.
    """

    words: str
    values: Callable[[Chip], AbstractSet[Hashable]]
    fields: tuple[str, ...]
    owner: Callable[[Chip], Hashable] = lambda chip: chip.ref


_FACTS: Final = (
    _Fact("die id", lambda chip: {chip.uuid}, ("uuid",)),
    _Fact(
        "PCI address",
        lambda chip: {chip.pci_bus_id},
        ("pci_bus_id", "pcie_root", "numa_node"),
        owner=lambda chip: chip.card_id,
    ),
    _Fact("address in the super pod", lambda chip: {chip.super_pod_sdid}, ("super_pod_sdid",)),
    _Fact("vNPU", lambda chip: {vdevice.id for vdevice in chip.vdevices}, ("vdevices",)),
)


def told_apart(
    chips: Sequence[Chip], known: Mapping[str, Chip]
) -> tuple[tuple[Chip, ...], tuple[str, ...]]:
    """The chips without values that several give, and a line for each such value.

    A chip keeps what is *known* of it, by its name, unless another chip has that. While a known
    chip does not answer, another one gets no die id that it did not have: both may have given it.
    """
    if known.keys() - {chip.name for chip in chips}:
        without = {chip.name for chip in known.values() if chip.uuid is None}
        chips = [replace(chip, uuid=None) if chip.name in without else chip for chip in chips]
    lines: dict[str, None] = {}
    for fact in _FACTS:
        for before in (known, {}):
            shared = _shared(fact, chips)
            lines |= dict.fromkeys(
                f"{', '.join(names)} give one {fact.words}, {value}, which is not used"
                for value, names in shared.items()
            )
            chips = [_without(fact, shared, chip, before.get(chip.name)) for chip in chips]
    return tuple(chips), tuple(lines)


def _shared(fact: _Fact, chips: Sequence[Chip]) -> dict[Hashable, list[str]]:
    """The values that several owners give, with the names of their chips."""
    found: dict[Hashable, list[Chip]] = {}
    for chip in chips:
        for value in fact.values(chip):
            if value is not None:
                found.setdefault(value, []).append(chip)
    return {
        value: [chip.name for chip in owners]
        for value, owners in found.items()
        if len(set(map(fact.owner, owners))) > 1
    }


def _without(fact: _Fact, shared: Collection[Hashable], chip: Chip, known: Chip | None) -> Chip:
    if fact.values(chip).isdisjoint(shared):
        return chip
    values: dict[str, Any] = {field: getattr(known, field, None) for field in fact.fields}
    if "vdevices" in values:
        own = fact.values(known) if known is not None else ()
        values["vdevices"] = tuple(
            one for one in chip.vdevices if one.id not in shared or one.id in own
        )
    return replace(chip, **values)
