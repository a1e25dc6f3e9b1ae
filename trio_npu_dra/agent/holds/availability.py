"""Which devices there are, given the holds, and which of them new claims may get. Pure.

Publication and prepare ask here. The device plugin has the chips that belong to resources and that
no claim holds (`device_plugin.assignment`): by the same holds, these are in no pool.

| a chip | its devices in the pool | new claims get |
|---|---|---|
| whole, free | the NPU, or the module of its card | it |
| free, and can be cut | the NPU and every possible partition, by counters | what counters leave |
| with partitions that claims hold | the same | what counters leave |
| held whole, or by shares | the held device | nothing, or the free shares |
| split manually | its vNPUs, and the partitions for which there is room | the free ones |
| held as a device that the node offers no more | the held device, *leaving* | nothing |
| for a resource, but held by claims | the held device, *leaving* | nothing |
| for a resource, or held by a pod | nothing | nothing |
| gone, and held | the held device, *leaving*, with a fault | nothing |
| gone, or not listed | nothing | nothing |
| with a vNPU that a container uses and nobody holds | neither that vNPU nor the NPU | the rest |

The node offers a device no more if its chip was split manually or is gone, or the flags or the
multi-die policy were changed. A *leaving* device is an ordinary one again when that ends.
*Leaving* is a taint. Without it a scheduler would allocate the device in the moment between its
release and the slice without it. A claim that tolerates every taint is still allocated a free share
of such a device, and is its holder then.

A held device stays until its release under the name of its hold, whatever the multi-die policy or
the list of cards says since. Names are never compared, for a chip can go by several.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, TypeAlias

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

_Key: TypeAlias = tuple[frozenset[str], tuple[str, int | None] | None]
_Given: TypeAlias = tuple[Board, tuple[Hold, ...], PartitionMode, frozenset[str]]

_LAST: Final[deque[tuple[_Given | None, tuple[Offer, ...]]]] = deque([(None, ())], maxlen=1)
"""The last result, which the pool and the next prepare need alike: without it a prepare takes 7 %
longer."""


def available(
    board: Board,
    holds: Iterable[Hold],
    partitioning: PartitionMode = NO_PARTITIONS,
    *,
    elsewhere: AbstractSet[str] = frozenset(),
) -> tuple[Offer, ...]:
    """All devices, by physical id, each with its `Standing`.

    No chip is in two of them, except a chip with partitions, which is in each of these. A chip that
    can be cut is there whole as well: all take from its counters, which show schedulers the room
    left. A held device that is no offer any more is made of its chips on the Board; offers with its
    name or one of its chips are left out until it is released. Admin access reserves no device.

    Args:
        board: The chips.
        holds: All holds of the node.
        partitioning: Whether chips are cut for claims; *holds* tell the vNPUs that were.
        elsewhere: Host device nodes of chips that are for resources, or may still be in use there.
    """
    given = board, tuple(holds), partitioning, frozenset(elsewhere)
    known, found = _LAST[0]
    if known != given:
        found = _available(*given)
        _LAST.append((given, found))
    return found


def _available(
    board: Board, holds: tuple[Hold, ...], partitioning: PartitionMode, elsewhere: frozenset[str]
) -> tuple[Offer, ...]:
    partitioning = replace(partitioning, ours=vnpus_of(holds))
    by_key = {offer.key: offer for offer in offers(board, partitioning)}
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
    uncounted = [offer for offer in held if not offer.takes]
    whole = {node for offer in uncounted if not offer.partition for node in offer.device_nodes}
    some = {node for offer in uncounted for node in offer.device_nodes}
    of_pods = {node for hold in holds if hold.is_of_pod for node in hold.nodes}
    free = [
        offer
        if key in stays and of_pods.isdisjoint(offer.device_nodes) and not offer.is_used
        else replace(offer, standing=Standing.ELSEWHERE)
        for key, offer in by_key.items()
        if key not in keys and offer.name not in names and not offer.gone
        if (whole if offer.partition else some).isdisjoint(offer.device_nodes)
    ]
    places = {key: place for place, key in enumerate(by_key)}

    def place(offer: Offer) -> tuple[int, bool, int, str]:
        """By chip: first without a partition, then in the order of offers, then the only held."""
        is_part, number = offer.partition is not None, places.get(offer.key, len(places))
        return offer.chips[0].physical_id, is_part, number, offer.name

    return tuple(sorted((*held, *free), key=place))


def pool_offers(
    board: Board,
    holds: Iterable[Hold],
    partitioning: PartitionMode = NO_PARTITIONS,
    *,
    elsewhere: AbstractSet[str] = frozenset(),
) -> tuple[Offer, ...]:
    """The devices of `available` that are in the DRA pool."""
    found = available(board, holds, partitioning, elsewhere=elsewhere)
    return tuple(offer for offer in found if offer.standing is not Standing.ELSEWHERE)


def names_of_chips(offered: Iterable[Offer]) -> dict[str, str]:
    """The name of the offer that has all of a chip, by the chip's device node."""
    return {
        node: offer.name for offer in offered if not offer.partition for node in offer.device_nodes
    }


def _groups(holds: Iterable[Hold]) -> dict[frozenset[str], list[Hold]]:
    """Holds of whole chips in groups that no hold crosses, by their chips; the largest first."""
    own = [hold for hold in holds if not hold.observer and not hold.partition]
    groups: dict[frozenset[str], list[Hold]] = {}
    for hold in sorted(own, key=lambda hold: (-len(hold.nodes), sorted(hold.nodes), hold.device)):
        nodes, members = hold.nodes, [hold]
        for group in [group for group in groups if not nodes.isdisjoint(group)]:
            nodes, members = nodes | group, [*groups.pop(group), *members]
        groups[nodes] = members
    return groups


def _held_offers(holds: Iterable[Hold], by_key: Mapping[_Key, Offer], board: Board) -> list[Offer]:
    """Held devices of whole chips, each with a unique name; offers of the Board choose first."""
    groups = _groups(holds)
    found: dict[str, Offer] = {}
    for nodes in sorted(groups, key=lambda nodes: (nodes, None) not in by_key):
        held = groups[nodes]
        names = tuple(dict.fromkeys(hold.device for hold in held))
        offer = by_key.get((nodes, None))
        if offer is None:
            chips = tuple(chip for chip in board.chips if chip.device_node in nodes)
            if not chips:
                continue
            kind = OfferKind.MODULE if len(nodes) > 1 else OfferKind.NPU
            offer = Offer(name=names[0], kind=kind, chips=chips)
        way = Held.BY_SHARES if all(hold.share is not None for hold in held) else Held.WHOLE
        if way is Held.BY_SHARES:
            # Counters do not count shares, so nothing else of the chip may be offered beside them.
            offer = replace(offer, takes={}, of={})
        is_of_pods = all(hold.is_of_pod for hold in held)
        standing = Standing.ELSEWHERE if is_of_pods else Standing.OPEN
        # After cards were renumbered another device may have the name.
        own_name_first = sorted(names, key=lambda name: name != offer.name)
        free = (name for name in own_name_first if name not in found)
        name = next(free, f"held-{offer.chips[0].physical_id}")
        found[name] = replace(offer, name=name, held=way, standing=standing)
    return list(found.values())


def _held_partitions(
    holds: Iterable[Hold], board: Board, partitioning: PartitionMode
) -> list[Offer]:
    """Held partitions of the chips on the Board, each once."""
    found: dict[_Key, Offer] = {}
    chips = {chip.device_node: chip for chip in board.chips}
    for hold in holds:
        if hold.partition is None or hold.observer or hold.holder.kind is HolderKind.LEFTOVER:
            continue  # no container uses a leftover
        for node in hold.nodes & chips.keys():
            offer = held_partition(board, chips[node], hold.device, hold.partition, partitioning)
            standing = Standing.ELSEWHERE if hold.is_of_pod else Standing.OPEN
            found[offer.key] = replace(offer, standing=standing)
    return list(found.values())
