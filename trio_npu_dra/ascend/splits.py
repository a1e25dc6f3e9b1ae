"""How a chip can be split, and what its partitions get; pure."""

from dataclasses import dataclass, fields, replace
from typing import Final

from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy, Resources, VnpuMode
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.ascend.templates import IDS_OF_A_CHIP, SplitTable, Template
from trio_npu_dra.ascend.traits import TRAITS

_MIB: Final = 1024 * 1024
_FIRST_ID: Final = 100


@dataclass(frozen=True, slots=True)
class Split:
    """How a chip can be split.

    Attributes:
        templates: As the vendor lists them.
        whole: The resources of the chip, if the chip does not report them.
        vdev_ids: The ids that its partitions can have; there are no more partitions than ids.
    """

    templates: tuple[Template, ...]
    whole: Resources
    vdev_ids: range

    def named(self, name: str) -> Template | None:
        """The template of that name."""
        return next((each for each in self.templates if each.name == name), None)


def split_of(chip: Chip) -> Split | None:
    """How the chip can be split; None if it cannot, or its memory is unknown.

    A partition gets no more than its part of the chip's own memory, though the vendor's table may
    say more.
    """
    table = _table_of(chip)
    if table is None or chip.memory_bytes is None:
        return None
    memory_mib = chip.memory_bytes // _MIB
    cores = chip.ai_cores if chip.ai_cores is not None else table.whole.ai_cores
    first = _FIRST_ID + IDS_OF_A_CHIP * chip.physical_id
    return Split(
        templates=tuple(_fitted(template, table, memory_mib) for template in table.templates),
        whole=replace(table.whole, ai_cores=cores, memory_mib=memory_mib),
        vdev_ids=range(first, first + table.partitions),
    )


def may_be_cut_by(chip: Chip, found: str | None, template: str) -> bool:
    """Whether a vNPU of the chip may be one of *template*, though the library calls it *found*.

    A name of no template tells nothing; None is no vNPU.
    """
    table = _table_of(chip)
    others = {each.name for each in table.templates} - {template} if table is not None else set()
    return found is not None and found not in others


def why_not_split(
    chip: Chip, *, policy: MultiDiePolicy | None = None, mode: VnpuMode | None = None
) -> str:
    """Why this driver cannot split the chip; empty if it can."""
    if _table_of(chip) is None:
        return f"an {chip.family} cannot be split"
    if chip.memory_bytes is None:
        return "its memory is not known"
    if "duo" in (chip.product_name or "").lower():  # mind-cluster's device plugin refuses it too
        return "the chips of a Duo can be split by hand only"
    if TRAITS[chip.family].dies_of_module > 1 and policy is not MultiDiePolicy.INDEPENDENT:
        return "the dies of a card go together (multi-die policy), so none can be split"
    if mode is VnpuMode.VIRTUAL_MACHINE:
        return "the node's vNPUs are for virtual machines (npu-smi set -t vnpu-mode -d 0)"
    return ""


def usable(chip: Chip, template: str, reported: Resources | None) -> Resources:
    """The resources that a container can use of a chip's partition.

    What the Ascend driver has not *reported* is from the table, if that has the template. The
    reported memory may be what the partition takes rather than what can be used, so the lesser
    counts.
    """
    split = split_of(chip)
    known = split.named(template) if split is not None else None
    listed = replace(known.takes, memory_mib=known.usable_memory_mib) if known else None
    if listed is None or reported is None:
        return reported or listed or Resources()
    memory = min(size for size in (reported.memory_mib, listed.memory_mib) if size is not None)
    facts = {field.name: getattr(reported, field.name) for field in fields(reported)}
    return replace(
        listed,
        **{name: fact for name, fact in facts.items() if fact is not None} | {"memory_mib": memory},
    )


def _fitted(template: Template, table: SplitTable, memory_mib: int) -> Template:
    part = memory_mib // template.parts
    half = 2 if memory_mib < table.large_mib else 1
    listed = template.takes.memory_mib or 0
    return replace(
        template,
        takes=replace(template.takes, memory_mib=min(listed // half, part)),
        usable_memory_mib=min(template.usable_memory_mib // half, part),
    )


def _table_of(chip: Chip) -> SplitTable | None:
    """How chips of its family and board are split; None if they are not, or it is not known."""
    traits = TRAITS[chip.family]
    return traits.splits.get(getattr(chip, traits.split_key) if traits.split_key else None)
