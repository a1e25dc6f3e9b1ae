"""What may be handed out as one: an NPU by itself, or a module of several dies; pure.

A chip is what is monitored, an offer is what a claim gets. Slices, claims, health and metrics go
from a chip to its offers and back by the chips' host device nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from trio_npu_dra.npu.dcmi.types import MultiDiePolicy
from trio_npu_dra.npu.model import Board, Chip, ChipHealth, worst_of
from trio_npu_dra.npu.traits import TRAITS


class OfferKind(StrEnum):
    """What an offer is; the attribute `type` of its device."""

    NPU = "npu"
    MODULE = "module"


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
        chips: The chips it gives, one or more, by physical id.
        held: How somebody has it now.
    """

    name: str
    kind: OfferKind
    chips: tuple[Chip, ...]
    held: Held = Held.NOT

    @property
    def device_nodes(self) -> frozenset[str]:
        """The host device nodes of its chips, by which holds are compared."""
        return frozenset(chip.device_node for chip in self.chips)

    @property
    def health(self) -> ChipHealth:
        """That of its worst chip."""
        return worst_of({chip.name: chip.health for chip in self.chips})

    @property
    def gone(self) -> bool:
        """Whether one of its chips is gone, so that no claim can get it."""
        return any(chip.gone for chip in self.chips)


def offers(board: Board) -> tuple[Offer, ...]:
    """What the chips of *board* may be handed out as, by physical id; no chip is in two of them.

    Chips that are gone are offered too: `holds.offered` decides who still sees them. A chip that
    others have split into vNPUs is in no offer: a container that opened it whole would be refused,
    or would disturb them.

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
            made.append(_npu(chip))
    made += [module for card, dies in cards.items() for module in _modules(card, dies)]
    whole = (offer for offer in made if not any(chip.vnpus for chip in offer.chips))
    return tuple(sorted(whole, key=lambda offer: offer.chips[0].physical_id))


def not_offered(board: Board) -> dict[str, str]:
    """Why chips of *board* are in no offer, by their names."""
    in_offers = {chip.name for offer in offers(board) for chip in offer.chips}
    return {chip.name: _why_not(chip) for chip in board.chips if chip.name not in in_offers}


def _why_not(chip: Chip) -> str:
    if chip.vnpus:
        return f"it is split into vNPUs {', '.join(map(str, chip.vnpus))}"
    return "the dies of a card go together, and its sister is missing or split into vNPUs"


def _npu(chip: Chip) -> Offer:
    return Offer(name=chip.name, kind=OfferKind.NPU, chips=(chip,))


def _modules(card_id: int, dies: list[Chip]) -> Iterator[Offer]:
    """The module of a card, if all its dies are known: a container cannot use a lone die.

    After cards were renumbered, dies of an earlier card of that number may be left as gone.
    """
    there = [chip for chip in dies if not chip.gone]
    for whole in (there, dies):
        if len(whole) == TRAITS[dies[0].family].dies_of_module:
            yield Offer(name=f"module-{card_id}", kind=OfferKind.MODULE, chips=tuple(whole))
            return
