"""Offers: an NPU, a module of several dies, or a partition of an NPU, each handed out as one. Pure.

Slices, claims, health and metrics find a chip's offers, and an offer's chips, by the chips' host
device nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from functools import cached_property
from typing import Final

from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy, Resources, VDevice, VnpuMode
from trio_npu_dra.ascend.model import Board, Chip, ChipHealth, Fault, FaultLevel, worst_of
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.ascend.partition_plan import Amounts, PartitionPlan, plan_partitions, taken_by
from trio_npu_dra.ascend.splits import split_of, usable, why_not_split
from trio_npu_dra.ascend.traits import TRAITS


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMode:
    """Whether and how chips are cut while claims come and go.

    Attributes:
        is_on: Whether they are; otherwise only vNPUs created manually are offered.
        ours: The ids of the vNPUs that were cut for claims; all others were created manually.
        refusals: The library's reasons for refusing to cut: by the chip's key, or `template_key`.
    """

    is_on: bool = False
    ours: frozenset[int] = frozenset()
    refusals: Mapping[str, str] = field(default_factory=dict, hash=False)


def template_key(board: Board, chip: Chip, template: str) -> str:
    """The key of a template's refusal, which is one for all chips of the chip's kind."""
    kind = (board.driver_version, chip.family, chip.board_id, chip.ai_cores)
    return " ".join(map(str, (*kind, template)))


NO_PARTITIONS: Final = PartitionMode()

LEAVING: Final = "leaving"
"""The taint of an offer that is `Standing.LEAVING`, without the driver's name before it."""


class OfferKind(StrEnum):
    """The attribute `type` of an offer's device."""

    NPU = "npu"
    MODULE = "module"
    VNPU = "vnpu"


class Held(Enum):
    """How an offer is held; until its release it can be held in no other way."""

    NOT = auto()
    WHOLE = auto()
    BY_SHARES = auto()


class Standing(Enum):
    """Where an offer stands in the DRA pool (`holds.availability` decides)."""

    OPEN = auto()
    """It is in the pool, and new claims may get it."""
    LEAVING = auto()
    """It stays in the pool until its holder releases it; no new claim may get it."""
    ELSEWHERE = auto()
    """It is not in the pool: it belongs to a device plugin resource, a pod has it by one, or a
    container uses its vNPU, which nobody holds."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What may be handed out as one.

    Attributes:
        name: The DRA device name, a DNS label.
        chips: By physical id; of a partition its one chip.
        partition: None for whole chips.
        takes: What it takes from the chip's counters. Offers of one chip overlap if they take
            anything; the scheduler counts how many fit.
        of: The chip's counters; empty where the chip is not cut.
    """

    name: str
    kind: OfferKind
    chips: tuple[Chip, ...]
    partition: Partition | None = None
    takes: Amounts = field(default_factory=dict, hash=False)
    of: Amounts = field(default_factory=dict, hash=False)
    held: Held = Held.NOT
    standing: Standing = Standing.OPEN

    @property
    def key(self) -> tuple[frozenset[str], tuple[str, int | None] | None]:
        """Its identity: two offers may have one name."""
        return self.device_nodes, self.partition.key if self.partition else None

    @cached_property
    def device_nodes(self) -> frozenset[str]:
        """The host device nodes of its chips; holds are compared by them."""
        return frozenset(chip.device_node for chip in self.chips)

    @property
    def health(self) -> ChipHealth:
        """The health of its worst chip; a lost partition has a fault of its own."""
        health = worst_of({chip.name: chip.health for chip in self.chips})
        if not self.is_lost:
            return health
        faults = (*health.faults, _LOST)
        worst_first = sorted(faults, key=lambda fault: fault.level.rank, reverse=True)
        return replace(health, faults=tuple(worst_first))

    @property
    def vdevice(self) -> VDevice | None:
        """Its vNPU as the library describes it."""
        if self.partition is None:
            return None
        known = {vdevice.id: vdevice for chip in self.chips for vdevice in chip.vdevices}
        return known.get(self.partition.vnpu) if self.partition.vnpu is not None else None

    @property
    def is_used(self) -> bool:
        """Whether it is a partition that a container uses."""
        return self.vdevice is not None and self.vdevice.in_use

    @property
    def usable(self) -> Resources | None:
        """The resources that a container gets by the partition; None for whole chips."""
        if self.partition is None:
            return None
        is_by_hand = self.vdevice is not None and not self.partition.on_demand
        reported = self.vdevice.resources if self.vdevice and is_by_hand else None
        return usable(self.chips[0], self.partition.template, reported)

    @property
    def is_lost(self) -> bool:
        """Whether it is a partition created manually that does not exist any more."""
        if self.partition is None or self.partition.on_demand:
            return False
        return all(self.partition.vnpu not in chip.vnpus for chip in self.chips)

    @property
    def gone(self) -> bool:
        """Whether one of its chips is gone, so that no claim can get it."""
        return any(chip.gone for chip in self.chips)


_LOST = Fault(
    code=0,
    level=FaultLevel.RESTART_NPU,
    rule="its device node leads nowhere",
    text="the vNPU does not exist any more",
    since=0,
)


def offers(board: Board, partitioning: PartitionMode = NO_PARTITIONS) -> tuple[Offer, ...]:
    """The offers of a Board's chips, by physical id.

    A chip that was split manually is offered in its vNPUs, and not whole: a container that opened
    it would be refused, or would disturb them. vNPUs for virtual machines have no device node. A
    chip that is cut for claims is offered whole, and in every partition that it could be cut into.

    Chips that are gone are offered too: `holds.availability` decides who still sees them.
    """
    made: list[Offer] = []
    cards: dict[int, list[Chip]] = {}
    for chip in board.chips:
        dies = TRAITS[chip.family].dies_of_module
        # Under the union policy the Ascend driver gives a container no single die (DCMI reference,
        # `dcmi_get_multi_die_policy`). An unknown policy counts as union: drivers from before the
        # call bind the dies, the vendor's device plugin sets union by default, and a container with
        # both dies works under either policy.
        if dies > 1 and board.multi_die_policy is not MultiDiePolicy.INDEPENDENT:
            cards.setdefault(chip.card_id, []).append(chip)
        else:
            made += _of_chip(board, chip, partitioning)
    made += [module for card, dies in cards.items() for module in _modules(card, dies)]
    return tuple(sorted(made, key=lambda offer: offer.chips[0].physical_id))


def held_partition(
    board: Board, chip: Chip, name: str, partition: Partition, partitioning: PartitionMode
) -> Offer:
    """A held partition; it takes from its chip's counters even if it is not offered now."""
    plan = _plan(board, chip, partitioning) if partition.on_demand else ""
    of: Amounts = {} if isinstance(plan, str) else plan.has
    takes = {
        counter: amount
        for counter, amount in taken_by(chip, partition.template).items()
        if counter in of
    }
    return Offer(
        name=name, kind=OfferKind.VNPU, chips=(chip,), partition=partition, takes=takes, of=of
    )


def not_offered(board: Board, partitioning: PartitionMode = NO_PARTITIONS) -> dict[str, str]:
    """Why chips are in no offer, by their names."""
    in_offers = {chip.name for offer in offers(board, partitioning) for chip in offer.chips}
    return {chip.name: _why_not(board, chip) for chip in board.chips if chip.name not in in_offers}


def not_partitioned(board: Board, partitioning: PartitionMode) -> dict[str, str]:
    """Why chips are not cut for claims, or not by all templates, by their names.

    Empty if cutting is off.
    """
    if not partitioning.is_on:
        return {}
    found = {}
    for chip in board.chips:
        plan = _plan(board, chip, partitioning)
        found[chip.name] = plan if isinstance(plan, str) else _refused(board, chip, partitioning)
    return {name: why for name, why in found.items() if why}


def _of_chip(board: Board, chip: Chip, partitioning: PartitionMode) -> Iterator[Offer]:
    """The whole chip, the partitions that it could be cut into, and those created manually."""
    plan = _plan(board, chip, partitioning)
    if isinstance(plan, PartitionPlan):
        if plan.is_whole:
            yield replace(_npu(chip), takes=plan.has, of=plan.has)
        for partition in plan.partitions:
            template = partition.template.replace("_", "-")  # a device name has no underscore
            yield Offer(
                name=f"{chip.name}-{template}-{partition.number}",
                kind=OfferKind.VNPU,
                chips=(chip,),
                partition=partition,
                takes=plan.takes[partition.template],
                of=plan.has,
            )
    elif not chip.vnpus:
        yield _npu(chip)
    if board.vnpu_mode is VnpuMode.VIRTUAL_MACHINE:
        return
    for vdevice in _cut_by_hand(chip, partitioning):
        yield Offer(
            name=f"{chip.name}-vnpu-{vdevice.id}",
            kind=OfferKind.VNPU,
            chips=(chip,),
            partition=Partition(template=vdevice.template, vnpu=vdevice.id),
        )


def _cut_by_hand(chip: Chip, partitioning: PartitionMode) -> list[VDevice]:
    return [vdevice for vdevice in chip.vdevices if vdevice.id not in partitioning.ours]


def _plan(board: Board, chip: Chip, partitioning: PartitionMode) -> PartitionPlan | str:
    """The partitions that a chip is offered in, or why it is not cut for claims."""
    if not partitioning.is_on:
        return "NPUs are not cut (--partitioning=none)"
    if refusal := partitioning.refusals.get(chip.key):
        return f"the Ascend driver does not let this driver cut it: {refusal}"
    if why := why_not_split(chip, policy=board.multi_die_policy, mode=board.vnpu_mode):
        return why
    by_hand = _cut_by_hand(chip, partitioning)
    plan = plan_partitions(chip, by_hand)
    if plan is None or not plan.partitions:
        ids = ", ".join(str(vdevice.id) for vdevice in by_hand)
        return f"vNPUs that were cut by hand leave no room: {ids}"
    kept = tuple(
        partition
        for partition in plan.partitions
        if template_key(board, chip, partition.template) not in partitioning.refusals
    )
    return replace(plan, partitions=kept) if kept else _refused(board, chip, partitioning)


def _refused(board: Board, chip: Chip, partitioning: PartitionMode) -> str:
    """Which templates the library refuses, and why; empty if none."""
    split = split_of(chip)
    names = [template.name for template in split.templates] if split is not None else []
    why = {name: partitioning.refusals.get(template_key(board, chip, name)) for name in names}
    return "; ".join(f"not by {name}: {refusal}" for name, refusal in why.items() if refusal)


def _why_not(board: Board, chip: Chip) -> str:
    if chip.vnpus:
        machines = board.vnpu_mode is VnpuMode.VIRTUAL_MACHINE
        of = " for virtual machines" if machines else ""
        return f"it is split into vNPUs {', '.join(map(str, chip.vnpus))}{of}"
    return "the dies of a card go together, and its sister is missing or split into vNPUs"


def _npu(chip: Chip) -> Offer:
    return Offer(name=chip.name, kind=OfferKind.NPU, chips=(chip,))


def _modules(card_id: int, dies: list[Chip]) -> Iterator[Offer]:
    """The module of a card, if all its dies are known: a container cannot use a lone die.

    After cards were renumbered, dies of an earlier card of that number may be left as gone.
    """
    there = [chip for chip in dies if not chip.gone]
    for whole in (there, dies):
        if any(chip.vnpus for chip in whole):
            continue
        if len(whole) == TRAITS[dies[0].family].dies_of_module:
            yield Offer(name=f"module-{card_id}", kind=OfferKind.MODULE, chips=tuple(whole))
            return
