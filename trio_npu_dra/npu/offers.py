"""What may be handed out as one: an NPU by itself, or a module of several dies; pure.

A chip is what is monitored, an offer is what a claim gets. Slices, claims, health and metrics go
from a chip to its offers and back by the chips' host device nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trio_npu_dra.npu.dcmi.types import MultiDiePolicy
from trio_npu_dra.npu.model import Board, Chip, ChipFamily, ChipHealth, worst_of


class OfferKind(StrEnum):
    """What an offer is; the attribute `type` of its device."""

    NPU = "npu"
    MODULE = "module"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What may be handed out as one.

    Attributes:
        name: The DRA device name, a DNS label.
        kind: What it is.
        chips: The chips it gives, one or more, by physical id.
    """

    name: str
    kind: OfferKind
    chips: tuple[Chip, ...]

    @property
    def device_nodes(self) -> frozenset[str]:
        """The host device nodes of its chips, by which holds are compared."""
        return frozenset(chip.device_node for chip in self.chips)

    @property
    def health(self) -> ChipHealth:
        """That of its worst chip."""
        return worst_of({chip.name: chip.health for chip in self.chips})


def offers(board: Board) -> tuple[Offer, ...]:
    """What the chips of *board* may be handed out as, by physical id; no chip is in two of them."""
    is_union = board.multi_die_policy is MultiDiePolicy.UNION
    modules = [chip for chip in board.chips if is_union and chip.family is ChipFamily.ASCEND_910_A3]
    by_card: dict[int, list[Chip]] = {}
    for chip in modules:
        by_card.setdefault(chip.card_id, []).append(chip)
    made = [_module(card, chips) for card, chips in by_card.items()]
    made += [_npu(chip) for chip in board.chips if chip not in modules]
    return tuple(sorted(made, key=lambda offer: offer.chips[0].physical_id))


def _npu(chip: Chip) -> Offer:
    return Offer(name=chip.name, kind=OfferKind.NPU, chips=(chip,))


def _module(card_id: int, dies: list[Chip]) -> Offer:
    return Offer(name=f"module-{card_id}", kind=OfferKind.MODULE, chips=tuple(dies))
