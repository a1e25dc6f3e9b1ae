"""What is handed out, and what is kept for who holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dev.rig.boards import a3, die, partition, split
from tests.holds.holding import hold
from trio_npu_dra.agent.holds.availability import available, names_of_chips, pool_offers
from trio_npu_dra.agent.holds.hold import Hold, HolderKind
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily
from trio_npu_dra.ascend.offers import NO_PARTITIONS, Held, Offer, PartitionMode, Standing, offers
from trio_npu_dra.ascend.partition import Partition

UNION, INDEPENDENT = MultiDiePolicy.UNION, MultiDiePolicy.INDEPENDENT


def given_out(board: Board, *holds: Hold) -> dict[str, list[int]]:
    """Physical ids by the names of what is offered, in order."""
    return {
        offer.name: [chip.physical_id for chip in offer.chips] for offer in available(board, holds)
    }


def leaving(board: Board, *holds: Hold, partitioning: PartitionMode = NO_PARTITIONS) -> list[str]:
    """Names of what no new claim may get."""
    found = pool_offers(board, holds, partitioning)
    return [offer.name for offer in found if offer.standing is Standing.LEAVING]


DIES = (die(0), die(1), die(2), die(3, gone=True))
RENUMBERED = a3(*(replace(die(number), card_id=7) for number in (0, 1)), die(2), die(3))
SWAPPED = a3(*(replace(die(number), card_id=1 - number // 2) for number in range(4)))
MODULE_0, MODULE_1 = hold("module-0", 0, 1), hold("module-1", 2, 3)
BOTH = {"module-0": [0, 1], "module-1": [2, 3]}


@pytest.mark.parametrize(
    ("board", "holds", "expected"),
    [
        # A gone device stays while it is held; admin access reserves nothing.
        (a3(*DIES), [], {"module-0": [0, 1]}),
        (a3(*DIES), [MODULE_1._replace(observer=True)], {"module-0": [0, 1]}),
        (a3(*DIES), [MODULE_1], BOTH),
        (a3(*DIES, policy=INDEPENDENT), [], {"npu-0": [0], "npu-1": [1], "npu-2": [2]}),
        # A held device stays although its chip was split manually since.
        (a3(die(0), die(1, vnpus=[116])), [], {}),
        (a3(die(0), die(1, vnpus=[116])), [MODULE_0], {"module-0": [0, 1]}),
        # The known rest of a held module keeps its name.
        (a3(die(2), policy=INDEPENDENT), [MODULE_1], {"module-1": [2]}),
        (a3(die(0), policy=INDEPENDENT), [MODULE_1], {"npu-0": [0]}),
        # Under a new name schedulers would take a held module for a free one.
        (RENUMBERED, [MODULE_0], BOTH),
        (RENUMBERED, [], {"module-7": [0, 1], "module-1": [2, 3]}),
        (SWAPPED, [MODULE_0], {"module-0": [0, 1]}),
        (SWAPPED, [MODULE_0, MODULE_1], BOTH),
        # Two devices with one name would lose the whole pool.
        (a3(*map(die, range(6))), [hold("module-2", 1)], {"module-2": [1], "module-1": [2, 3]}),
        (
            a3(*map(die, range(6))),
            [hold("module-2", 1), hold("module-2", 4, 5)],
            {"held-1": [1], "module-1": [2, 3], "module-2": [4, 5]},
        ),
    ],
)
def test_held_devices_stay_under_their_names(
    board: Board, holds: list[Hold], expected: dict[str, list[int]]
) -> None:
    """Whatever happens to their chips."""
    assert given_out(board, *holds) == expected


@pytest.mark.parametrize(
    ("policy", "held", "expected"),
    [
        (INDEPENDENT, MODULE_0, {"module-0": [0, 1], "npu-2": [2], "npu-3": [3]}),
        (UNION, hold("npu-1", 1), {"npu-1": [1], "module-1": [2, 3]}),
    ],
)
def test_a_held_device_stays_as_it_is_when_the_policy_changes(
    policy: MultiDiePolicy, held: Hold, expected: dict[str, list[int]]
) -> None:
    """No claim gets a part of it, or the device that it is a part of."""
    board = a3(*map(die, range(4)), policy=policy)
    assert given_out(board, held) == expected
    assert leaving(board, held) == [held.device]
    assert leaving(board) == []


SPLIT = a3(
    split(die(0), partition(100), partition(101)),
    die(1),
    die(2, gone=True),
    policy=MultiDiePolicy.INDEPENDENT,
)
PARTITIONS = {"npu-0-vnpu-100": [0], "npu-0-vnpu-101": [0]}


def test_a_held_partition_leaves_the_others_and_a_held_chip_none() -> None:
    """Whoever cut the chip."""
    assert given_out(SPLIT) == PARTITIONS | {"npu-1": [1]}
    assert given_out(SPLIT, hold("npu-0-vnpu-100", 0, vnpu=100)) == PARTITIONS | {"npu-1": [1]}
    assert given_out(SPLIT, hold("npu-0", 0)) == {"npu-0": [0], "npu-1": [1]}


def test_a_partition_that_vanished_stays_as_lost_while_it_is_held() -> None:
    """And keeps its chip from being handed out whole: a container may still have it open."""
    held = hold("npu-0-vnpu-104", 0, vnpu=104)
    lost = {offer.name for offer in available(SPLIT, [held]) if offer.is_lost}
    assert lost == {"npu-0-vnpu-104"}
    assert leaving(SPLIT, held) == ["npu-0-vnpu-104"]
    unsplit = a3(die(0), die(1), policy=INDEPENDENT)
    assert given_out(unsplit, held) == {"npu-0-vnpu-104": [0], "npu-1": [1]}
    assert given_out(unsplit) == {"npu-0": [0], "npu-1": [1]}


def test_a_partition_of_a_gone_chip_is_there_while_it_is_held() -> None:
    """As the chip would be."""
    board = a3(split(die(0, gone=True), partition(100), partition(101)), policy=INDEPENDENT)
    assert given_out(board) == {}
    assert given_out(board, hold("npu-0-vnpu-100", 0, vnpu=100)) == {"npu-0-vnpu-100": [0]}
    assert given_out(a3(), hold("npu-0-vnpu-100", 0, vnpu=100)) == {}


def test_partitions_are_not_what_a_chip_is_called() -> None:
    """A message about the chip is about all of it."""
    assert names_of_chips(available(SPLIT, ())) == {"/dev/davinci1": "npu-1"}


CUTTABLE = replace(
    die(3), family=ChipFamily.ASCEND_910B, board_id=0x41, ai_cores=20, memory_bytes=32 << 30
)


CUT = PartitionMode(is_on=True)


def test_what_is_held_by_shares_is_not_cut() -> None:
    """A scheduler does not count shares in counters: it would give out partitions beside them."""
    board, partitioning = Board(chips=(CUTTABLE,)), PartitionMode(is_on=True)
    assert len(available(board, (), partitioning)) > 1
    (whole,) = available(board, [hold("npu-3", 3, share="1")], partitioning)
    assert (whole.name, whole.takes, whole.of) == ("npu-3", {}, {})
    assert len(available(board, [hold("npu-3", 3)], partitioning)) > 1, "who has all takes from all"


def test_a_chip_of_which_one_holder_has_a_share_and_another_all_is_held_whole() -> None:
    """Records can say so; no further share is given out beside the one who has all."""
    holds = [hold("npu-3", 3, share="1"), hold("npu-3", 3, claim="infer")]
    (found,) = available(Board(chips=(die(3),)), holds)
    assert found.held is Held.WHOLE


def test_a_held_partition_stays_when_chips_are_cut_no_more() -> None:
    """Its chip is not handed out beside it, neither as a whole nor by shares."""
    quarter = Partition(template="vir05_1c_8g", number=0)
    for vnpus in ((), (115,)):
        board = Board(chips=(replace(CUTTABLE, vnpus=vnpus),))
        held = hold("npu-3-vir05-1c-8g-0", 3)._replace(partition=replace(quarter, vnpu=115))
        (kept_partition,) = available(board, [held])
        assert (kept_partition.name, kept_partition.takes) == (held.device, {})
        assert leaving(board, held) == [held.device]
        assert leaving(board, held, partitioning=PartitionMode(is_on=True)) == []


def test_a_held_partition_counts_when_somebody_cuts_by_hand_what_was_left() -> None:
    """Its number is beyond the room then, and still nobody gets what it has."""
    held = hold("npu-3-vir05-1c-8g-3", 3)._replace(
        partition=Partition(template="vir05_1c_8g", number=3, vnpu=115),
    )
    chip = split(CUTTABLE, partition(115, "vir05_1c_8g"), partition(114, "vir05_1c_8g"))
    found = {offer.name: offer for offer in available(Board(chips=(chip,)), [held], CUT)}
    kept, free = found[held.device], found["npu-3-vir05-1c-8g-0"]
    assert (kept.takes, kept.of) == (free.takes, free.of)
    assert kept.standing is Standing.LEAVING
    assert kept.of["slots"] == free.of["slots"] == 15
    assert "npu-3" not in found


@pytest.mark.parametrize("is_used", [True, False])
def test_a_vnpu_that_a_container_uses_and_nobody_holds_is_in_no_pool(*, is_used: bool) -> None:
    """It takes its room all the same, and its chip is not given beside it."""
    vdevice = replace(partition(115, "vir05_1c_8g"), in_use=is_used)
    names = [offer.name for offer in pool_offers(Board(chips=(split(CUTTABLE, vdevice),)), (), CUT)]
    assert ("npu-3-vnpu-115" in names) != is_used
    assert "npu-3-vir05-1c-8g-2" in names
    assert not {"npu-3", "npu-3-vir05-1c-8g-3"}.intersection(names)
    whole = a3(split(die(0), vdevice), policy=INDEPENDENT)  # not cut for claims
    names = [offer.name for offer in pool_offers(whole, ())]
    assert names == ([] if is_used else ["npu-0-vnpu-115"])


NUMBERS = st.integers(0, 7)
BOARDS = st.builds(
    lambda numbers, gone, cut, policy: a3(
        *(
            split(die(number, gone=number in gone), *map(partition, cut.get(number, ())))
            for number in sorted(numbers)
        ),
        policy=policy,
    ),
    st.sets(NUMBERS),
    st.sets(NUMBERS, max_size=3),
    st.dictionaries(NUMBERS, st.sets(st.integers(100, 102)), max_size=2),
    st.sampled_from([UNION, INDEPENDENT, None]),
)
HOLDS = st.lists(
    st.builds(
        lambda device, numbers, observer: hold(device, *numbers, observer=observer),
        st.sampled_from(["module-0", "module-1", "npu-0", "npu-5"]),
        st.sets(NUMBERS, min_size=1, max_size=2),
        st.booleans(),
    )
    | st.builds(
        lambda number, vnpu: hold(f"npu-{number}-vnpu-{vnpu}", number, vnpu=vnpu),
        NUMBERS,
        st.integers(100, 102),
    ),
    max_size=4,
)


@given(board=BOARDS, holds=HOLDS)
@example(board=a3(die(0), die(1)), holds=[hold("npu-0", 0), hold("module-0", 0, 1)])
def test_no_chip_is_given_twice_and_none_is_taken_from_its_holder(
    board: Board, holds: list[Hold]
) -> None:
    """Whatever is there and held; in order of physical ids, each name once, equal for equal."""
    found = available(board, holds)
    chips = Counter((chip.device_node, offer.partition) for offer in found for chip in offer.chips)
    assert set(chips.values()) <= {1}
    held = {node for one in holds if not one.observer for node in one.nodes}
    assert held & {chip.device_node for chip in board.chips} <= {node for node, _ in chips}
    assert not any(offer.gone for offer in found if held.isdisjoint(offer.device_nodes))
    numbers = [offer.chips[0].physical_id for offer in found]
    assert numbers == sorted(numbers)
    assert len({offer.name for offer in found}) == len(found)
    assert found == available(board, holds[::-1])
    assert {offer for offer in offers(board) if not offer.gone} >= set(found) - set(
        offered_for_holders(found, held)
    )


def offered_for_holders(found: tuple[Offer, ...], held: set[str]) -> list[Offer]:
    """Those that somebody holds."""
    return [offer for offer in found if not held.isdisjoint(offer.device_nodes)]


CHIP_STATES = st.tuples(
    st.sampled_from(["there", "there", "gone", "cut by hand", "absent"]),
    st.sampled_from(
        ["free", "whole", "by shares", "partition", "partition beyond the room", "pod"]
    ),
    st.booleans(),
)
"""Of a chip: what the hardware says, who has what of it, and whether it is for a resource."""


def held_as(number: int, way: str, claim: str) -> list[Hold]:
    """A hold on a chip in this way."""
    whole = hold(f"npu-{number}", number, claim=claim)
    if way == "pod":
        return [whole._replace(holder=whole.holder._replace(kind=HolderKind.POD))]
    if way.startswith("partition"):
        partition_number = 3 if way == "partition beyond the room" else 0
        vnpu = 100 + 16 * number
        quarter = Partition(template="vir05_1c_8g", number=partition_number, vnpu=vnpu)
        device = f"npu-{number}-vir05-1c-8g-{partition_number}"
        return [whole._replace(device=device, partition=quarter)]
    return [] if way == "free" else [whole._replace(share="1" if way == "by shares" else None)]


def cuttable(number: int, state: str, way: str) -> Chip:
    """A 910B4 in this state."""
    chip = replace(
        die(number, gone=state == "gone"),
        family=ChipFamily.ASCEND_910B,
        board_id=0x41,
        ai_cores=20,
        memory_bytes=32 << 30,
    )
    ours = [partition(100 + 16 * number, "vir05_1c_8g")] if way.startswith("partition") else []
    by_hand = [partition(115 + 16 * number, "vir05_1c_8g")] if state == "cut by hand" else []
    return split(chip, *ours, *by_hand)


@given(states=st.lists(CHIP_STATES, min_size=1, max_size=3), is_partitioning=st.booleans())
def test_a_chip_in_any_state_is_given_out_in_one_way_or_none(
    states: list[tuple[str, str, bool]], is_partitioning: bool
) -> None:
    """What a claim has stays until its release; only an open device is there after it."""
    partitioning = PartitionMode(is_on=is_partitioning)

    def board_of(holds: list[Hold]) -> Board:
        """With the partitions that claims have: the driver destroys them with their holds."""
        chips = [
            cuttable(number, state, way if {*held_as(number, way, "a")} <= {*holds} else "free")
            for number, (state, way, _) in enumerate(states)
            if state != "absent"
        ]
        return Board(chips=tuple(chips))

    holds = [one for number, (_, way, _) in enumerate(states) for one in held_as(number, way, "a")]
    board = board_of(holds)
    elsewhere = {f"/dev/davinci{number}" for number, (*_, moves) in enumerate(states) if moves}

    def standings(holds: Collection[Hold]) -> dict[tuple[object, ...], Standing]:
        found = pool_offers(board, holds, partitioning, elsewhere=elsewhere)
        return {
            (offer.device_nodes, offer.partition and offer.partition.key): offer.standing
            for offer in found
        }

    now = standings(holds)
    held = {
        (one.nodes, one.partition and one.partition.key)
        for one in holds
        if one.holder.kind is HolderKind.CLAIM
    }
    known = {chip.device_node for chip in board.chips}
    assert {key for key in held if key[0] <= known} <= now.keys()
    for key, standing in now.items():
        if standing is Standing.LEAVING:
            assert key in held, "only what is held is leaving"
        left = [one for one in holds if (one.nodes, one.partition and one.partition.key) != key]
        after = pool_offers(board_of(left), left, partitioning, elsewhere=elsewhere)
        keys = {(offer.device_nodes, offer.partition and offer.partition.key) for offer in after}
        assert (key in keys) == (standing is Standing.OPEN), (key, standing)
