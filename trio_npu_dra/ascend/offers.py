"""What may be handed out as one: an NPU, a module of several dies, or a partition of an NPU; pure.

A chip is what is monitored, an offer is what a claim gets. Slices, claims, health and metrics go
from a chip to its offers and back by the chips' host device nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from functools import cached_property
from typing import Final

from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy, Resources, VDevice, VnpuMode
from trio_npu_dra.ascend.model import Board, Chip, ChipHealth, Fault, FaultLevel, worst_of
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.ascend.partition_plan import Amounts, PartitionPlan, plan_partitions, taken_by
from trio_npu_dra.ascend.splits import usable, why_not_split
from trio_npu_dra.ascend.traits import TRAITS


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMode:
    """Whether and how chips are cut while claims come and go.

    Attributes:
        is_on: Whether they are; else only what others cut by hand is known of.
        ours: The ids of the vNPUs that were cut for claims.
        by_hand: The ids of those known to be cut by hand (`claims.by_hand`); None: all but ours. A
            vNPU that is neither was perhaps cut by another instance of this driver a moment ago. It
            is not offered, and its chip is not offered whole.
        refusals: Why the library cuts some chips not, in its words, by the chip's key.
    """

    is_on: bool = False
    ours: frozenset[int] = frozenset()
    by_hand: frozenset[int] | None = None
    refusals: Mapping[str, str] = field(default_factory=dict, hash=False)

    def unsettled(self, board: Board) -> tuple[int, ...]:
        """The ids of vNPUs on the Board of which it is not known yet who cut them."""
        if self.by_hand is None:
            return ()
        known = self.ours | self.by_hand
        return tuple(vnpu for chip in board.chips for vnpu in chip.vnpus if vnpu not in known)


NO_PARTITIONS: Final = PartitionMode()

LEAVING: Final = "leaving"
"""The taint of an offer that is `Standing.LEAVING`, without the driver's name before it."""


class OfferKind(StrEnum):
    """What an offer is; the attribute `type` of its device."""

    NPU = "npu"
    MODULE = "module"
    VNPU = "vnpu"


class Held(Enum):
    """How an offer is held; in the other way nobody can have it until it is released."""

    NOT = auto()
    WHOLE = auto()
    BY_SHARES = auto()


class Standing(Enum):
    """Where an offer stands in the DRA pool (`holds.availability` decides)."""

    OPEN = auto()
    """It is in the pool, and new claims may get it."""
    LEAVING = auto()
    """It is in the pool as long as its holder has it, and no new claim may get it."""
    ELSEWHERE = auto()
    """It is not in the pool: it belongs to a device plugin resource, or a pod has it by one."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What may be handed out as one.

    Attributes:
        name: The DRA device name, a DNS label.
        kind: What it is.
        chips: The chips it gives, one or more, by physical id; of a partition the chip it is of.
        partition: Which partition it is; None for whole chips.
        takes: What it takes of its chip, by counter. Offers of one chip that all take something
            overlap, and how many there can be is for the scheduler to count.
        of: What there is of it, by counter; empty where the chip is not cut.
        held: How somebody has it now.
        standing: Whether it is in the pool, and whether new claims may get it.
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
        """What tells offers apart that may have the same name."""
        return self.device_nodes, self.partition.key if self.partition else None

    @cached_property
    def device_nodes(self) -> frozenset[str]:
        """The host device nodes of its chips, by which holds are compared."""
        return frozenset(chip.device_node for chip in self.chips)

    @property
    def health(self) -> ChipHealth:
        """That of its worst chip; a partition that is gone has a fault of its own."""
        health = worst_of({chip.name: chip.health for chip in self.chips})
        if not self.is_lost:
            return health
        faults = (*health.faults, _LOST)
        worst_first = sorted(faults, key=lambda fault: fault.level.rank, reverse=True)
        return replace(health, faults=tuple(worst_first))

    @property
    def vdevice(self) -> VDevice | None:
        """What is known of the vNPU that it is."""
        if self.partition is None:
            return None
        known = {vdevice.id: vdevice for chip in self.chips for vdevice in chip.vdevices}
        return known.get(self.partition.vnpu) if self.partition.vnpu is not None else None

    @property
    def usable(self) -> Resources | None:
        """What a container with the partition can use; None for whole chips."""
        if self.partition is None:
            return None
        is_by_hand = self.vdevice is not None and not self.partition.on_demand
        told = self.vdevice.resources if self.vdevice and is_by_hand else None
        return usable(self.chips[0], self.partition.template, told)

    @property
    def is_lost(self) -> bool:
        """Whether it is a partition that somebody made by hand, and that is not there any more."""
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
    """What the chips of *board* may be handed out as, by physical id.

    No chip is in two of them, but a chip that others have split into vNPUs is in one for each of
    these. It is not offered whole: a container that opened it would be refused, or would disturb
    them. vNPUs for virtual machines have no device node, and are not offered. A chip that is cut
    for claims is offered whole, and in every partition that it could be cut into, each of which
    takes from the chip's counters.

    Chips that are gone are offered too: `holds.availability` decides who still sees them.

    Under the union policy both dies of an A3 card go together, or neither: the Ascend driver gives
    a container no single die (DCMI reference, `dcmi_get_multi_die_policy`). An Ascend driver that
    does not tell its policy is taken to have this one. Those from before the call existed bind the
    dies, union is what the vendor's device plugin sets by default, and a container with both dies
    works under either policy, one with a single die under `independent` only.
    """
    made: list[Offer] = []
    cards: dict[int, list[Chip]] = {}
    for chip in board.chips:
        dies = TRAITS[chip.family].dies_of_module
        if dies > 1 and board.multi_die_policy is not MultiDiePolicy.INDEPENDENT:
            cards.setdefault(chip.card_id, []).append(chip)
        else:
            made += _of_chip(board, chip, partitioning)
    made += [module for card, dies in cards.items() for module in _modules(card, dies)]
    return tuple(sorted(made, key=lambda offer: offer.chips[0].physical_id))


def held_partition(
    board: Board, chip: Chip, name: str, partition: Partition, partitioning: PartitionMode
) -> Offer:
    """A held partition, offered or not: it takes from its chip's counters either way."""
    of: Amounts = {}
    if partition.on_demand and not _why_not_cut(board, chip, partitioning):
        possible = _cut(chip, partitioning)
        of = possible.has if possible else {}
    takes = {
        counter: amount
        for counter, amount in taken_by(chip, partition.template).items()
        if counter in of
    }
    return Offer(
        name=name, kind=OfferKind.VNPU, chips=(chip,), partition=partition, takes=takes, of=of
    )


def not_offered(board: Board, partitioning: PartitionMode = NO_PARTITIONS) -> dict[str, str]:
    """Why chips of *board* are in no offer, by their names."""
    in_offers = {chip.name for offer in offers(board, partitioning) for chip in offer.chips}
    return {chip.name: _why_not(board, chip) for chip in board.chips if chip.name not in in_offers}


def not_partitioned(board: Board, partitioning: PartitionMode) -> dict[str, str]:
    """Why chips of *board* are not cut for claims, by their names; empty where none is to be."""
    if not partitioning.is_on:
        return {}
    reasons = {chip.name: _why_not_cut(board, chip, partitioning) for chip in board.chips}
    return {name: why for name, why in reasons.items() if why}


def _of_chip(board: Board, chip: Chip, partitioning: PartitionMode) -> Iterator[Offer]:
    """The chip as a whole, the partitions that it could be cut into, and those of others."""
    possible = None if _why_not_cut(board, chip, partitioning) else _cut(chip, partitioning)
    if possible is not None:
        if possible.is_whole:
            yield replace(_npu(chip), takes=possible.has, of=possible.has)
        for partition in possible.partitions:
            template = partition.template.replace("_", "-")  # a device name has no underscore
            yield Offer(
                name=f"{chip.name}-{template}-{partition.number}",
                kind=OfferKind.VNPU,
                chips=(chip,),
                partition=partition,
                takes=possible.takes[partition.template],
                of=possible.has,
            )
    elif not chip.vnpus:
        yield _npu(chip)
    if board.vnpu_mode is VnpuMode.VIRTUAL_MACHINE:
        return
    for vdevice in cut_by_hand(chip, partitioning):
        yield Offer(
            name=f"{chip.name}-vnpu-{vdevice.id}",
            kind=OfferKind.VNPU,
            chips=(chip,),
            partition=Partition(template=vdevice.template, vnpu=vdevice.id),
        )


def cut_by_hand(chip: Chip, partitioning: PartitionMode) -> list[VDevice]:
    """The vNPUs of a chip that are known to be cut by hand."""
    return [
        vdevice
        for vdevice in chip.vdevices
        if vdevice.id not in partitioning.ours
        if partitioning.by_hand is None or vdevice.id in partitioning.by_hand
    ]


def _cut(chip: Chip, partitioning: PartitionMode) -> PartitionPlan | None:
    return plan_partitions(chip, told=chip.shares_out, by_hand=cut_by_hand(chip, partitioning))


def _why_not_cut(board: Board, chip: Chip, partitioning: PartitionMode) -> str:
    if not partitioning.is_on:
        return "NPUs are not cut (--partitioning=none)"
    if refusal := partitioning.refusals.get(chip.key):
        return f"the Ascend driver does not let this driver cut it: {refusal}"
    if why := why_not_split(chip, policy=board.multi_die_policy, mode=board.vnpu_mode):
        return why
    possible = _cut(chip, partitioning)
    if possible is None or not possible.partitions:
        by_hand = ", ".join(str(vdevice.id) for vdevice in cut_by_hand(chip, partitioning))
        return f"vNPUs that were cut by hand leave no room: {by_hand}"
    return ""


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
