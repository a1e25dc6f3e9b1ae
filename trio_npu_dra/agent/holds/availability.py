"""Which devices there are now, given who holds what, and which of them new claims may get; pure.

Publication and prepare ask here. The device plugin has the chips that are for resources and that
no claim holds (`device_plugin.assignment`): by the same holds, these are in no pool.

| a chip | its devices in the pool | new claims get |
|---|---|---|
| whole, free | the NPU, or the module of its card | it |
| free, and can be cut | the NPU and every possible partition, by counters | what counters leave |
| of which claims hold partitions | the same | what counters leave |
| held whole, or by shares | what is held | nothing, or the free shares |
| cut by hand | its vNPUs, and the partitions for which there is room | those that are free |
| held in a way that the node offers no more | what is held, *leaving* | nothing |
| for a resource, but held by claims | what is held, *leaving* | nothing |
| for a resource, or held by a pod | nothing | nothing |
| gone, and held | what is held, *leaving*, with a fault | nothing |
| gone, or not listed | nothing | nothing |
| with a vNPU of which it is not known who cut it | neither that vNPU nor the NPU | partitions |

The node offers a device no more when its chip was cut by hand or is gone, or since the flags or the
multi-die policy were changed. A *leaving* device is an ordinary one again when that ends.
*Leaving* is a taint. Without it a scheduler would allocate the device in the moment between its
release and the slice that lacks it. A claim that tolerates every taint is allocated a free share of
such a device all the same, and is its holder then.

A held device stays until it is released: its holder uses it, whatever the multi-die policy or the
list of cards says since. Names are never compared, for a chip can go by several; the name under
which something is held is the name under which it stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeAlias

from trio_npu_dra.agent.holds.hold import Hold, HolderKind, vnpus_of
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.offers import (
    NO_PARTITIONS,
    Held,
    Offer,
    OfferKind,
    PartitionMode,
    Standing,
    held_partition,
    offers,
)
from trio_npu_dra.kit.base.last_result import keeps_last_result

_Key: TypeAlias = tuple[frozenset[str], tuple[str, int | None] | None]


@dataclass(frozen=True, slots=True)
class _Held:
    """Chips that holds have together.

    Attributes:
        nodes: Their host device nodes.
        names: What the holds call them, the hold of most chips first.
        way: Whether as a whole or by shares.
        by_pods: Whether only pods hold them, by resources.
    """

    nodes: frozenset[str]
    names: tuple[str, ...]
    way: Held
    by_pods: bool


def available(
    board: Board,
    holds: Iterable[Hold],
    partitioning: PartitionMode = NO_PARTITIONS,
    *,
    elsewhere: AbstractSet[str] = frozenset(),
) -> tuple[Offer, ...]:
    """All devices, by physical id, each with its `Standing`.

    No chip is in two of them, but in one for each of its partitions. One that can be cut is there
    whole as well: all of these take from its counters, by which schedulers see what is left. A held
    device that is no offer any more is made of those of its chips that are on the Board; offers
    that share a chip or the name with it are left out until it is released. Admin access reserves
    no device.

    Args:
        board: The chips.
        holds: Who has what.
        partitioning: Whether chips are cut for claims; which vNPUs were is seen from *holds*.
        elsewhere: Host device nodes of chips that are for resources, or may still be in use there.
    """
    return _offered(board, tuple(holds), partitioning, frozenset(elsewhere))


def pool_offers(
    board: Board,
    holds: Iterable[Hold],
    partitioning: PartitionMode = NO_PARTITIONS,
    *,
    elsewhere: AbstractSet[str] = frozenset(),
) -> tuple[Offer, ...]:
    """Those of `offered` that are in the DRA pool."""
    found = available(board, holds, partitioning, elsewhere=elsewhere)
    return tuple(offer for offer in found if offer.standing is not Standing.ELSEWHERE)


@keeps_last_result  # a prepare needs what was made when the last claim came or went
def _offered(
    board: Board, holds: tuple[Hold, ...], partitioning: PartitionMode, elsewhere: frozenset[str]
) -> tuple[Offer, ...]:
    partitioning = replace(partitioning, ours=vnpus_of(holds))
    by_key = {offer.key: offer for offer in _unheld(board, partitioning)}
    stays = {
        key
        for key, offer in by_key.items()
        if not offer.gone and elsewhere.isdisjoint(offer.device_nodes)
    }
    held = [
        replace(offer, standing=Standing.LEAVING)
        if offer.standing is Standing.OPEN and offer.key not in stays
        else offer
        for offer in (
            *_held_offers(holds, by_key, board),
            *_held_partitions(holds, board, partitioning),
        )
    ]
    keys = {offer.key for offer in held}
    names = {offer.name for offer in held}
    whole = {
        node
        for offer in held
        if not offer.partition and not offer.takes
        for node in offer.device_nodes
    }
    some = {node for offer in held for node in offer.device_nodes if not offer.takes}
    of_pods = {node for hold in holds if _is_of_pod(hold) for node in hold.nodes}
    free = [
        offer
        if key in stays and of_pods.isdisjoint(offer.device_nodes)
        else replace(offer, standing=Standing.ELSEWHERE)
        for key, offer in by_key.items()
        if key not in keys and offer.name not in names and not offer.gone
        if (whole if offer.partition else some).isdisjoint(offer.device_nodes)
    ]
    places = {key: place for place, key in enumerate(by_key)}
    return tuple(sorted((*held, *free), key=lambda offer: _place(offer, places)))


_unheld = keeps_last_result(offers)


def names_of_chips(offered: Iterable[Offer]) -> dict[str, str]:
    """The offer that has all of a chip, by the chip's device node; partitions are none of that."""
    return {
        node: offer.name for offer in offered if not offer.partition for node in offer.device_nodes
    }


def _is_of_pod(hold: Hold) -> bool:
    return hold.holder.kind is HolderKind.POD


def _place(offer: Offer, places: Mapping[_Key, int]) -> tuple[int, bool, int, str]:
    """By chip: first without a partition, then in the order of offers, then what is only held."""
    place = places.get(offer.key, len(places))
    return offer.chips[0].physical_id, offer.partition is not None, place, offer.name


def _held(holds: Iterable[Hold]) -> Iterator[_Held]:
    """Chips that are held, apart where no hold has both."""
    own = sorted(
        (hold for hold in holds if not hold.observer and not hold.partition),
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
            by_pods=all(map(_is_of_pod, members)),
        )


def _held_offers(holds: Iterable[Hold], by_key: Mapping[_Key, Offer], board: Board) -> list[Offer]:
    """What is held, each under a name that no other has; what may be handed out chooses first."""
    found: dict[str, Offer] = {}
    for one in sorted(_held(holds), key=lambda one: (one.nodes, None) not in by_key):
        offer = by_key.get((one.nodes, None)) or _kept(one, board)
        if offer is not None:
            name = _free_name(one, offer, found)
            found[name] = replace(
                _uncut(offer, one.way), name=name, held=one.way, standing=_standing(one.by_pods)
            )
    return list(found.values())


def _standing(by_pods: bool) -> Standing:
    return Standing.ELSEWHERE if by_pods else Standing.OPEN


def _uncut(offer: Offer, way: Held) -> Offer:
    """The offer without counters if it is held by shares, which schedulers do not count in them.

    Then nothing else of its chip is offered either. It is so after a restart with another flag.
    """
    return replace(offer, takes={}, of={}) if way is Held.BY_SHARES else offer


def _held_partitions(
    holds: Iterable[Hold], board: Board, partitioning: PartitionMode
) -> list[Offer]:
    """Partitions that are held, each once; none of a chip that is not on the Board."""
    found: dict[_Key, Offer] = {}
    chips = {chip.device_node: chip for chip in board.chips}
    for hold in holds:
        if hold.partition is None or hold.observer or hold.holder.kind is HolderKind.LEFTOVER:
            continue  # nobody uses what is left
        for node in hold.nodes & chips.keys():
            offer = held_partition(board, chips[node], hold.device, hold.partition, partitioning)
            found[offer.key] = replace(offer, standing=_standing(_is_of_pod(hold)))
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
