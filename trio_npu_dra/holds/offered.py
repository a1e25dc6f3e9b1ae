"""What is handed out now, seeing who holds what; pure.

What is held stays until it is released: its holder uses it, whatever the multi-die policy or the
list of cards says since. Names are never compared, for a chip can go by several; the name under
which something is held is the name under which it stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from trio_npu_dra.holds.hold import Hold, HolderKind, vnpus_of
from trio_npu_dra.last_result import keeps_last_result
from trio_npu_dra.npu.model import Board
from trio_npu_dra.npu.offers import NO_CUTTING, Cutting, Held, Offer, OfferKind, offers

_Key: TypeAlias = tuple[frozenset[str], tuple[str, int | None] | None]


@dataclass(frozen=True, slots=True)
class _Held:
    """Chips that holds have together.

    Attributes:
        nodes: Their host device nodes.
        names: What the holds call them, the hold of most chips first.
        way: Whether as a whole or by shares.
    """

    nodes: frozenset[str]
    names: tuple[str, ...]
    way: Held


def offered(
    board: Board, holds: Iterable[Hold], cutting: Cutting = NO_CUTTING
) -> tuple[Offer, ...]:
    """What may be handed out, and what is held, by physical id.

    No chip is in two of them, but in one for each of its pieces. One that can be cut is there whole
    as well: all of these take from its counters, by which schedulers see what is left.

    An offer with a chip that is gone is there only while that chip's offer is held. A held device
    that is no offer any more stays, made of those of its chips that are on the Board; offers that
    share a chip or the name with it are left out until it is released. Who only looks on (admin
    access) keeps nothing.

    Args:
        board: The chips.
        holds: Who has what.
        cutting: Whether chips are cut for claims; which vNPUs were is seen from *holds*.
    """
    return _offered(board, tuple(holds), cutting)


@keeps_last_result  # who prepares a claim needs what was made when the last one came or went
def _offered(board: Board, holds: tuple[Hold, ...], cutting: Cutting) -> tuple[Offer, ...]:
    by_key = {offer.key: offer for offer in usual(board, holds, cutting)}
    found = _held_offers(_held(holds), by_key, board)
    found += _held_pieces(holds, by_key, board)
    keys = {offer.key for offer in found}
    names = {offer.name for offer in found}
    whole = {
        node
        for offer in found
        if not offer.piece and not offer.takes
        for node in offer.device_nodes
    }
    some = {node for offer in found for node in offer.device_nodes if not offer.takes}
    found += [
        offer
        for key, offer in by_key.items()
        if key not in keys and offer.name not in names and not offer.gone
        if (whole if offer.piece else some).isdisjoint(offer.device_nodes)
    ]
    places = {key: place for place, key in enumerate(by_key)}
    return tuple(sorted(found, key=lambda offer: _place(offer, places)))


def usual(board: Board, holds: Iterable[Hold], cutting: Cutting = NO_CUTTING) -> tuple[Offer, ...]:
    """What may be handed out if nobody holds anything, seeing which vNPUs were cut for claims."""
    return _usual(board, replace(cutting, ours=vnpus_of(holds)))


_usual = keeps_last_result(offers)


def kept(board: Board, holds: Iterable[Hold], cutting: Cutting = NO_CUTTING) -> tuple[Offer, ...]:
    """Those of `offered` that nobody can have any more once they are released."""
    holds = tuple(holds)
    keys = {offer.key for offer in usual(board, holds, cutting)}
    return tuple(offer for offer in offered(board, holds, cutting) if offer.key not in keys)


def names_of_chips(offered: Iterable[Offer]) -> dict[str, str]:
    """The offer that has all of a chip, by the chip's device node; pieces are none of that."""
    return {node: offer.name for offer in offered if not offer.piece for node in offer.device_nodes}


def _place(offer: Offer, places: Mapping[_Key, int]) -> tuple[int, bool, int, str]:
    """By chip, first those without a piece, then as they are offered, then what is only held."""
    place = places.get(offer.key, len(places))
    return offer.chips[0].physical_id, offer.piece is not None, place, offer.name


def _held(holds: Iterable[Hold]) -> Iterator[_Held]:
    """Chips that are held, apart where no hold has both."""
    own = sorted(
        (hold for hold in holds if not hold.observer and not hold.piece),
        key=lambda hold: (-len(hold.nodes), sorted(hold.nodes), hold.device),
    )
    groups: list[tuple[frozenset[str], list[Hold]]] = []
    for hold in own:
        nodes, members = hold.nodes, [hold]
        for group in [group for group in groups if not nodes.isdisjoint(group[0])]:
            groups.remove(group)
            nodes, members = nodes | group[0], [*group[1], *members]
        groups.append((nodes, members))
    for nodes, members in groups:
        is_shared = all(hold.share is not None for hold in members)
        yield _Held(
            nodes,
            tuple(dict.fromkeys(hold.device for hold in members)),
            Held.BY_SHARES if is_shared else Held.WHOLE,
        )


def _held_offers(held: Iterable[_Held], by_key: Mapping[_Key, Offer], board: Board) -> list[Offer]:
    """What is held, each under a name that no other has; what may be handed out chooses first."""
    found: dict[str, Offer] = {}
    for one in sorted(held, key=lambda one: (one.nodes, None) not in by_key):
        offer = by_key.get((one.nodes, None)) or _kept(one, board)
        if offer is not None:
            name = _free_name(one, offer, found)
            found[name] = replace(_uncut(offer, one.way), name=name, held=one.way)
    return list(found.values())


def _uncut(offer: Offer, way: Held) -> Offer:
    """The offer without counters if it is held by shares, which schedulers do not count in them.

    Then nothing else of its chip is offered either. It is so after a restart with another flag.
    """
    return replace(offer, takes={}, of={}) if way is Held.BY_SHARES else offer


def _held_pieces(holds: Iterable[Hold], by_key: Mapping[_Key, Offer], board: Board) -> list[Offer]:
    """Pieces that are held, each once; those of chips that are not on the Board are not there."""
    found: dict[_Key, Offer] = {}
    chips = {chip.device_node: chip for chip in board.chips}
    for hold in holds:
        if hold.piece is None or hold.observer or hold.holder.kind is HolderKind.LEFTOVER:
            continue  # nobody uses what is left: it need not be published
        key = hold.nodes, hold.piece.key
        of = tuple(chips[node] for node in hold.nodes if node in chips)
        if of:
            kept = Offer(name=hold.device, kind=OfferKind.VNPU, chips=of, piece=hold.piece)
            found[key] = replace(by_key.get(key, kept), name=hold.device, piece=hold.piece)
    return list(found.values())


def _kept(held: _Held, board: Board) -> Offer | None:
    """Held chips that are no offer of the Board; None if none of them is on it."""
    chips = tuple(chip for chip in board.chips if chip.device_node in held.nodes)
    kind = OfferKind.MODULE if len(held.nodes) > 1 else OfferKind.NPU
    return Offer(name=held.names[0], kind=kind, chips=chips) if chips else None


def _free_name(held: _Held, offer: Offer, taken: Collection[str]) -> str:
    """What the holds call it; after cards were renumbered another may have that name."""
    called = sorted(held.names, key=lambda name: name != offer.name)
    free = (name for name in called if name not in taken)
    return next(free, f"held-{offer.chips[0].physical_id}")
