"""What may be handed out as one: an NPU, a module of several dies, or a piece of an NPU; pure.

A chip is what is monitored, an offer is what a claim gets. Slices, claims, health and metrics go
from a chip to its offers and back by the chips' host device nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto

from trio_npu_dra.npu.dcmi.types import MultiDiePolicy, Resources, VDevice, VnpuMode
from trio_npu_dra.npu.model import Board, Chip, ChipHealth, Fault, FaultLevel, worst_of
from trio_npu_dra.npu.piece import Piece
from trio_npu_dra.npu.templates import usable
from trio_npu_dra.npu.traits import TRAITS


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What may be handed out as one.

    Attributes:
        name: The DRA device name, a DNS label.
        kind: What it is.
        chips: The chips it gives, one or more, by physical id; of a piece the chip it is of.
        piece: Which piece it is; None for whole chips.
        held: How somebody has it now.
    """

    name: str
    kind: OfferKind
    chips: tuple[Chip, ...]
    piece: Piece | None = None
    held: Held = Held.NOT

    @property
    def key(self) -> tuple[frozenset[str], tuple[str, int | None] | None]:
        """What tells offers apart that may have the same name."""
        return self.device_nodes, self.piece.key if self.piece else None

    @property
    def device_nodes(self) -> frozenset[str]:
        """The host device nodes of its chips, by which holds are compared."""
        return frozenset(chip.device_node for chip in self.chips)

    @property
    def health(self) -> ChipHealth:
        """That of its worst chip; a piece that does not exist any more has a fault of its own."""
        health = worst_of({chip.name: chip.health for chip in self.chips})
        if not self.is_lost:
            return health
        faults = (*health.faults, _LOST)
        worst_first = sorted(faults, key=lambda fault: fault.level.rank, reverse=True)
        return replace(health, faults=tuple(worst_first))

    @property
    def vdevice(self) -> VDevice | None:
        """What is known of the vNPU that it is."""
        if self.piece is None:
            return None
        known = {vdevice.id: vdevice for chip in self.chips for vdevice in chip.vdevices}
        return known.get(self.piece.vnpu) if self.piece.vnpu is not None else None

    @property
    def usable(self) -> Resources | None:
        """What a container with the piece can use; None for whole chips."""
        if self.piece is None:
            return None
        told = self.vdevice.resources if self.vdevice else None
        return usable(self.chips[0], self.piece.template, told)

    @property
    def is_lost(self) -> bool:
        """Whether it is a piece that somebody made by hand, and that is not there any more."""
        if self.piece is None or self.piece.on_demand:
            return False
        return all(self.piece.vnpu not in chip.vnpus for chip in self.chips)

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


def offers(board: Board) -> tuple[Offer, ...]:
    """What the chips of *board* may be handed out as, by physical id.

    No chip is in two of them, but a chip that others have split into vNPUs is in one for each of
    these. It is not offered whole: a container that opened it would be refused, or would disturb
    them. vNPUs for virtual machines have no device node, and are not offered.

    Chips that are gone are offered too: `holds.offered` decides who still sees them.

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
            made += _of_chip(board, chip)
    made += [module for card, dies in cards.items() for module in _modules(card, dies)]
    return tuple(sorted(made, key=lambda offer: offer.chips[0].physical_id))


def not_offered(board: Board) -> dict[str, str]:
    """Why chips of *board* are in no offer, by their names."""
    in_offers = {chip.name for offer in offers(board) for chip in offer.chips}
    return {chip.name: _why_not(board, chip) for chip in board.chips if chip.name not in in_offers}


def _of_chip(board: Board, chip: Chip) -> Iterator[Offer]:
    """The chip as a whole, or the pieces into which others have split it."""
    if not chip.vnpus:
        yield _npu(chip)
    if board.vnpu_mode is VnpuMode.VIRTUAL_MACHINE:
        return
    for vdevice in chip.vdevices:
        yield Offer(
            name=f"{chip.name}-vnpu-{vdevice.id}",
            kind=OfferKind.VNPU,
            chips=(chip,),
            piece=Piece(template=vdevice.template, vnpu=vdevice.id),
        )


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
