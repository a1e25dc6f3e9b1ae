"""What is handed out, and what is kept for who holds it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.holds.holding import hold
from tests.npu.boards import a3, die, piece, split
from trio_npu_dra.holds.hold import Hold
from trio_npu_dra.holds.offered import kept, names_of_chips, offered
from trio_npu_dra.npu.dcmi.types import MultiDiePolicy
from trio_npu_dra.npu.model import Board, ChipFamily
from trio_npu_dra.npu.offers import Cutting, Held, Offer, offers
from trio_npu_dra.npu.piece import Piece

UNION, INDEPENDENT = MultiDiePolicy.UNION, MultiDiePolicy.INDEPENDENT


def given_out(board: Board, *holds: Hold) -> dict[str, list[int]]:
    """Physical ids by the names of what is offered, in order."""
    return {
        offer.name: [chip.physical_id for chip in offer.chips] for offer in offered(board, holds)
    }


def test_without_holds_it_is_what_is_there() -> None:
    """Who looks on keeps nothing."""
    dies = (die(0), die(1), die(2), die(3, gone=True))
    assert given_out(a3(*dies)) == {"module-0": [0, 1]}
    watched = hold("module-1", 2, 3, observer=True)
    assert given_out(a3(*dies), watched) == {"module-0": [0, 1]}


def test_what_is_gone_stays_while_it_is_held() -> None:
    """Its holder's pod is told so; released, it is not offered any more."""
    dies = (die(0), die(1), die(2), die(3, gone=True))
    assert given_out(a3(*dies), hold("module-1", 2, 3)) == {"module-0": [0, 1], "module-1": [2, 3]}
    alone = a3(*dies, policy=INDEPENDENT)
    assert given_out(alone) == {"npu-0": [0], "npu-1": [1], "npu-2": [2]}
    assert given_out(alone, hold("npu-3", 3))["npu-3"] == [3]


@pytest.mark.parametrize(
    ("policy", "held", "expected"),
    [
        (INDEPENDENT, hold("module-0", 0, 1), {"module-0": [0, 1], "npu-2": [2], "npu-3": [3]}),
        (UNION, hold("npu-1", 1), {"npu-1": [1], "module-1": [2, 3]}),
    ],
)
def test_what_is_held_stays_as_it_is_when_the_policy_changes(
    policy: MultiDiePolicy, held: Hold, expected: dict[str, list[int]]
) -> None:
    """And nobody gets a part of it, or what it is a part of."""
    board = a3(*map(die, range(4)), policy=policy)
    assert given_out(board, held) == expected
    assert [offer.name for offer in kept(board, [held])] == [held.device]
    assert kept(board, []) == ()


def test_what_is_held_stays_when_others_split_its_chip() -> None:
    """Its holder had it before."""
    board = a3(die(0), die(1, vnpus=[116]))
    assert given_out(board) == {}
    assert given_out(board, hold("module-0", 0, 1)) == {"module-0": [0, 1]}


def test_of_a_held_module_that_is_half_forgotten_the_rest_stays() -> None:
    """Under its name, also where the rest would be an offer by itself."""
    assert given_out(a3(die(2), policy=INDEPENDENT), hold("module-1", 2, 3)) == {"module-1": [2]}
    assert given_out(a3(die(0), policy=INDEPENDENT), hold("module-1", 2, 3)) == {"npu-0": [0]}


def test_a_held_module_keeps_its_name_when_its_card_gets_another_number() -> None:
    """Under the new name schedulers would take it for a free one, and give it again."""
    board = a3(*(replace(die(number), card_id=7) for number in (0, 1)), die(2), die(3))
    held = hold("module-0", 0, 1)
    assert given_out(board, held) == {"module-0": [0, 1], "module-1": [2, 3]}
    assert given_out(board) == {"module-7": [0, 1], "module-1": [2, 3]}
    swapped = a3(*(replace(die(number), card_id=1 - number // 2) for number in range(4)))
    assert given_out(swapped, held) == {"module-0": [0, 1]}
    both = (held, hold("module-1", 2, 3))
    assert given_out(swapped, *both) == {"module-0": [0, 1], "module-1": [2, 3]}


def test_a_name_that_is_another_ones_now_is_given_once() -> None:
    """After cards were renumbered: two devices of one name would lose the whole pool."""
    board = a3(*map(die, range(6)), policy=UNION)
    assert given_out(board, hold("module-2", 1)) == {"module-2": [1], "module-1": [2, 3]}
    both = (hold("module-2", 1), hold("module-2", 4, 5))
    assert given_out(board, *both) == {"held-1": [1], "module-1": [2, 3], "module-2": [4, 5]}


SPLIT = a3(
    split(die(0), piece(100), piece(101)),
    die(1),
    die(2, gone=True),
    policy=MultiDiePolicy.INDEPENDENT,
)
PIECES = {"npu-0-vnpu-100": [0], "npu-0-vnpu-101": [0]}


def test_a_piece_that_is_held_keeps_nobody_from_the_others() -> None:
    """They are there all the time."""
    assert given_out(SPLIT) == PIECES | {"npu-1": [1]}
    assert given_out(SPLIT, hold("npu-0-vnpu-100", 0, vnpu=100)) == PIECES | {"npu-1": [1]}


def test_who_holds_a_chip_keeps_it_whole_when_others_split_it() -> None:
    """Nobody gets a piece of it."""
    assert given_out(SPLIT, hold("npu-0", 0)) == {"npu-0": [0], "npu-1": [1]}


def test_a_piece_that_vanished_stays_as_lost_while_it_is_held() -> None:
    """And keeps its chip from being handed out whole: a container may still have it open."""
    held = hold("npu-0-vnpu-104", 0, vnpu=104)
    lost = {offer.name for offer in offered(SPLIT, [held]) if offer.is_lost}
    assert lost == {"npu-0-vnpu-104"}
    assert [offer.name for offer in kept(SPLIT, [held])] == ["npu-0-vnpu-104"]
    unsplit = a3(die(0), die(1), policy=INDEPENDENT)
    assert given_out(unsplit, held) == {"npu-0-vnpu-104": [0], "npu-1": [1]}
    assert given_out(unsplit) == {"npu-0": [0], "npu-1": [1]}


def test_a_piece_of_a_gone_chip_is_there_while_it_is_held() -> None:
    """As the chip would be."""
    board = a3(split(die(0, gone=True), piece(100), piece(101)), policy=INDEPENDENT)
    assert given_out(board) == {}
    assert given_out(board, hold("npu-0-vnpu-100", 0, vnpu=100)) == {"npu-0-vnpu-100": [0]}
    assert given_out(a3(), hold("npu-0-vnpu-100", 0, vnpu=100)) == {}


def test_pieces_are_not_what_a_chip_is_called() -> None:
    """A message about the chip is about all of it."""
    assert names_of_chips(offered(SPLIT, ())) == {"/dev/davinci1": "npu-1"}


CUTTABLE = replace(
    die(3), family=ChipFamily.ASCEND_910B, board_id=0x41, ai_cores=20, memory_bytes=32 << 30
)


def test_what_is_held_by_shares_is_not_cut() -> None:
    """A scheduler does not count shares in counters; so it would hand out pieces beside them."""
    board, cutting = Board(chips=(CUTTABLE,)), Cutting(is_on=True)
    assert len(offered(board, (), cutting)) > 1
    (whole,) = offered(board, [hold("npu-3", 3, share="1")], cutting)
    assert (whole.name, whole.takes, whole.of) == ("npu-3", {}, {})
    assert len(offered(board, [hold("npu-3", 3)], cutting)) > 1, "who has all takes from all"


def test_a_chip_of_which_one_holder_has_a_share_and_another_all_is_held_whole() -> None:
    """Records can say so; no further share is given out beside the one who has all."""
    holds = [hold("npu-3", 3, share="1"), hold("npu-3", 3, claim="infer")]
    (found,) = offered(Board(chips=(die(3),)), holds)
    assert found.held is Held.WHOLE


def test_a_held_piece_stays_when_chips_are_cut_no_more() -> None:
    """Its chip is not handed out beside it, neither as a whole nor by shares."""
    quarter = Piece(template="vir05_1c_8g", number=0)
    for vnpus in ((), (115,)):
        board = Board(chips=(replace(CUTTABLE, vnpus=vnpus),))
        held = replace(hold("npu-3-vir05-1c-8g-0", 3), piece=replace(quarter, vnpu=115))
        (kept_piece,) = offered(board, [held])
        assert (kept_piece.name, kept_piece.takes) == (held.device, {})


NUMBERS = st.integers(0, 7)
BOARDS = st.builds(
    lambda numbers, gone, cut, policy: a3(
        *(
            split(die(number, gone=number in gone), *map(piece, cut.get(number, ())))
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
def test_no_chip_is_given_twice_and_none_is_taken_from_its_holder(
    board: Board, holds: list[Hold]
) -> None:
    """Whatever is there and held; in order of physical ids, each name once, equal for equal."""
    found = offered(board, holds)
    chips = Counter((chip.device_node, offer.piece) for offer in found for chip in offer.chips)
    assert set(chips.values()) <= {1}
    held = {node for one in holds if not one.observer for node in one.nodes}
    assert held & {chip.device_node for chip in board.chips} <= {node for node, _ in chips}
    assert not any(offer.gone for offer in found if held.isdisjoint(offer.device_nodes))
    numbers = [offer.chips[0].physical_id for offer in found]
    assert numbers == sorted(numbers)
    assert len({offer.name for offer in found}) == len(found)
    assert found == offered(board, holds[::-1])
    assert {offer for offer in offers(board) if not offer.gone} >= set(found) - set(
        offered_for_holders(found, held)
    )


def offered_for_holders(found: tuple[Offer, ...], held: set[str]) -> list[Offer]:
    """Those that somebody holds."""
    return [offer for offer in found if not held.isdisjoint(offer.device_nodes)]
