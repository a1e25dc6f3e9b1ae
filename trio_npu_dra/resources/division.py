"""Which chips are in the DRA pool and which in a resource, seeing who holds them; pure.

No chip is in two places. What is held stays where its holder got it, and what is to move is in
neither place until nobody has it any more: not a claim, not a pod, and no process that we know
nothing of. So a chip that becomes free in one place is never given out there once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from trio_npu_dra.holds.hold import Hold, HolderKind, holds_of
from trio_npu_dra.holds.offered import offered
from trio_npu_dra.npu.model import Board, Chip
from trio_npu_dra.npu.offers import NO_CUTTING, Cutting, Offer
from trio_npu_dra.resources.selection import Selection

ResourceChips: TypeAlias = Mapping[str, tuple[Chip, ...]]
"""The chips of each resource, by physical id."""


def pool_offers(
    board: Board,
    holds: Collection[Hold],
    selection: Selection,
    *,
    leaving: Collection[str] = (),
    cutting: Cutting = NO_CUTTING,
) -> tuple[Offer, ...]:
    """What is in the DRA pool: what claims hold, and of the rest what no resource is to have.

    A module is there if all its dies are. Of a chip that is to move the pieces that claims hold
    are there, and no others; one that claims hold by shares is there with all its shares.

    Args:
        board: The chips.
        holds: Who has what.
        selection: What the operator wants.
        leaving: Device nodes of chips that were in a resource, and may still be in use.
        cutting: Whether chips of the pool are cut for claims.
    """
    elsewhere = _nodes_of_pods(holds).union(leaving)
    return tuple(
        offer
        for offer in offered(board, holds, cutting)
        if _is_claimed(offer, holds)
        or (
            elsewhere.isdisjoint(offer.device_nodes)
            and all(selection.resource_of(chip) is None for chip in offer.chips)
        )
    )


def resource_chips(
    board: Board,
    holds: Collection[Hold],
    selection: Selection,
    *,
    held_as: Mapping[str, str],
    unused: AbstractSet[str],
) -> ResourceChips:
    """The chips of each resource, by physical id; a resource of which no chip is free has none.

    Args:
        board: The chips.
        holds: Who has what.
        selection: What the operator wants.
        held_as: The resource by which a pod got a chip, by the chip's host device node.
        unused: Device nodes of chips that no process used when we looked.
    """
    found: dict[str, list[Chip]] = {}
    for chip in board.chips:
        resource = selection.resource_of(chip)
        if resource is None:
            continue
        chips = found.setdefault(resource, [])
        node = chip.device_node
        if node in held_as:
            is_there = held_as[node] == resource
        else:
            is_there = node in unused and not chip.gone
        if is_there and not chip.vnpus and not _claimed({node}, holds):
            chips.append(chip)
    return {resource: tuple(chips) for resource, chips in found.items()}


def unclear(
    board: Board,
    holds: Collection[Hold],
    selection: Selection,
    *,
    unused: AbstractSet[str],
    leaving: Collection[str] = (),
) -> tuple[Chip, ...]:
    """Chips that are to move and that nobody is known to hold, but a process may use."""
    return tuple(
        chip
        for chip in board.chips
        if (selection.resource_of(chip) is not None or chip.device_node in leaving)
        and not chip.gone
        and chip.device_node not in unused
        and not holds_of({chip.device_node}, holds)
    )


def _is_claimed(offer: Offer, holds: Iterable[Hold]) -> bool:
    """Whether a claim has just this piece, or whole chips of the offer."""
    piece = offer.piece.key if offer.piece else None
    same = [hold for hold in holds if (hold.piece.key if hold.piece else None) == piece]
    return _claimed(offer.device_nodes, same)


def _claimed(nodes: Collection[str], holds: Iterable[Hold]) -> bool:
    """Whether a claim, or what only a newer version knows, has one of the chips."""
    return any(hold.holder.kind is not HolderKind.POD for hold in holds_of(nodes, holds))


def _nodes_of_pods(holds: Iterable[Hold]) -> frozenset[str]:
    return frozenset(
        node for hold in holds if hold.holder.kind is HolderKind.POD for node in hold.nodes
    )
