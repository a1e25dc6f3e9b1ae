"""The counters of a chip and every partition that it could be cut into. Pure.

A partition takes from the counters what its template says, and the whole chip takes all, so the
scheduler knows which of them fit together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

from trio_npu_dra.ascend.dcmi.types import Resources, VDevice
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.ascend.splits import Split, split_of
from trio_npu_dra.ascend.templates import Template

Amounts: TypeAlias = Mapping[str, int]
"""By counter: whole units, but bytes of memory and halves of PNG decoders."""

SLOTS: Final = "slots"
"""The counter of partitions: how many a chip can have at once."""
_MEMORY: Final = "memory"
_MIB: Final = 1024 * 1024
_COUNTERS: Final[Mapping[str, str]] = {
    field.name.replace("_", "-"): field.name
    for field in fields(Resources)
    if field.name != "memory_mib"  # counted in bytes
}
"""Counters, `ai-cores` first, and the fields of `Resources` that they count."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The partitions that a chip could be cut into.

    Attributes:
        has: The chip's counters, less what partitions created manually take.
        is_whole: Whether no partition was created manually, so the chip can be handed out whole.
        partitions: As many of each template as could exist at once; fewer of all together.
        takes: What a partition takes, by template and counter.
    """

    has: Amounts
    is_whole: bool
    partitions: tuple[Partition, ...]
    takes: Mapping[str, Amounts]


def plan_partitions(chip: Chip, by_hand: Iterable[VDevice] = ()) -> PartitionPlan | None:
    """The partitions that a chip could be cut into; None if its kind or memory is unknown.

    Args:
        chip: Resources that it does not report for vNPUs are from the vendor's tables. A 910B has
            more AI CPUs while it is cut than before, so the larger number counts.
        by_hand: Its vNPUs created manually. They take what their templates say, or what the chip
            reports of them if a template is unknown.
    """
    split = split_of(chip)
    if split is None:
        return None
    total = _total(split, chip.shares_out)
    taken = [_taken(split.named(one.template) or one.resources) for one in by_hand]
    has = {
        counter: max(0, amount - sum(part.get(counter, 0) for part in taken))
        for counter, amount in total.items()
    }
    takes = {template.name: _taken(template) for template in split.templates}
    return PartitionPlan(
        has={counter: amount for counter, amount in has.items() if amount},
        is_whole=not taken,
        partitions=tuple(
            Partition(template=template, number=number)
            for template, amounts in takes.items()
            for number in range(
                min(has.get(counter, 0) // amount for counter, amount in amounts.items())
            )
        ),
        takes=takes,
    )


def taken_by(chip: Chip, template: str) -> Amounts:
    """What a partition takes of a chip; nothing if the chip has no such template."""
    split = split_of(chip)
    found = split.named(template) if split else None
    return _taken(found) if found else {}


def _total(split: Split, reported: Resources | None) -> Amounts:
    known = _amounts(split.whole)
    if reported is not None:
        cpus = {"ai-cpus": max(known.get("ai-cpus", 0), reported.ai_cpus or 0)}
        known |= _amounts(reported) | cpus
    # Partitions get their part of what the chip says that it has, rounded down: so is the whole.
    return known | {SLOTS: len(split.vdev_ids), _MEMORY: (split.whole.memory_mib or 0) * _MIB}


def _taken(partition: Resources | Template) -> dict[str, int]:
    """What a partition takes, without the counters that it leaves alone."""
    takes = partition.takes if isinstance(partition, Template) else partition
    amounts = _amounts(takes) | {_MEMORY: (takes.memory_mib or 0) * _MIB, SLOTS: 1}
    return {counter: amount for counter, amount in amounts.items() if amount}


def _amounts(resources: Resources) -> dict[str, int]:
    """The known resources except the memory."""
    amounts = {counter: getattr(resources, field) for counter, field in _COUNTERS.items()}
    return {counter: amount for counter, amount in amounts.items() if amount is not None}
