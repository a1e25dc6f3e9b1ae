"""Each chip in one place, or in none while it moves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.holds.entries import chip, hold
from tests.npu.boards import a3, die
from trio_npu_dra.holds.hold import Hold, HolderKind
from trio_npu_dra.npu.model import Board, ChipFamily
from trio_npu_dra.npu.offers import Cutting
from trio_npu_dra.npu.piece import Piece
from trio_npu_dra.resources.division import pool_offers, resource_chips, unclear
from trio_npu_dra.resources.selection import Selection

RESOURCE = "huawei.com/Ascend910"
BOARD = Board(chips=tuple(chip(number) for number in range(4)))


def of_pod(number: int) -> Hold:
    """A pod's hold on a chip."""
    one = hold(f"pod-of-npu-{number}", number, device=f"npu-{number}")
    return replace(one, holder=replace(one.holder, kind=HolderKind.POD))


def of_claim(number: int, *, observer: bool = False) -> Hold:
    """A claim's hold on a chip."""
    return hold(f"claim-{number}", number, device=f"npu-{number}", observer=observer)


def node(number: int) -> str:
    """A chip's device node."""
    return f"/dev/davinci{number}"


def pool(holds: Collection[Hold], text: str, board: Board = BOARD) -> list[str]:
    """The names in the DRA pool."""
    return [offer.name for offer in pool_offers(board, holds, Selection.parse(text))]


def resource(
    holds: Collection[Hold],
    text: str,
    *,
    held_as: dict[int, str] | None = None,
    unused: Collection[int] = range(16),
    board: Board = BOARD,
) -> list[int]:
    """The physical ids in the resource."""
    found = resource_chips(
        board,
        holds,
        Selection.parse(text),
        held_as={node(number): name for number, name in (held_as or {}).items()},
        unused=frozenset(map(node, unused)),
    )
    return [chip.physical_id for chip in found.get(RESOURCE, ())]


def test_free_chips_are_where_they_belong() -> None:
    """The operator decides."""
    assert pool([], "1-2") == ["npu-0", "npu-3"]
    assert resource([], "1-2") == [1, 2]


def test_a_claim_keeps_its_chip_in_the_pool() -> None:
    """Who only looks on keeps nothing."""
    holds = [of_claim(1), of_claim(2, observer=True)]
    assert pool(holds, "all") == ["npu-1"]
    assert resource(holds, "all") == [0, 2, 3]


def test_a_pod_keeps_its_chip_from_the_pool() -> None:
    """It stays in the resource only if it is to be there."""
    holds = [of_pod(1), of_pod(2)]
    assert pool(holds, "") == ["npu-0", "npu-3"]
    held_as = {1: RESOURCE, 2: "example.com/other"}
    assert resource(holds, "all", held_as=held_as, unused=[0]) == [0, 1]


def test_a_chip_in_unknown_use_waits() -> None:
    """It is in neither place, and looked at again."""
    assert resource([], "all", unused=[0, 3]) == [0, 3]
    assert pool([], "all") == []
    found = unclear(BOARD, [of_claim(1)], Selection.parse("0-2"), unused=frozenset({node(0)}))
    assert [chip.physical_id for chip in found] == [2]


def test_a_chip_that_leaves_a_resource_waits_too() -> None:
    """Unless a claim has it already."""
    leaving = [node(0), node(1)]
    holds = [of_claim(1)]
    selection = Selection.parse("")
    found = [offer.name for offer in pool_offers(BOARD, holds, selection, leaving=leaving)]
    assert found == ["npu-1", "npu-2", "npu-3"]
    (waits,) = unclear(BOARD, holds, selection, unused=frozenset(), leaving=leaving)
    assert waits.physical_id == 0


def test_what_cannot_be_handed_out_is_not_there() -> None:
    """A chip that is split into vNPUs, and one that is gone, unless a pod has it."""
    chips = (
        replace(chip(0), vnpus=(100,)),
        replace(chip(1), gone=True),
        replace(chip(2), gone=True),
        chip(3),
    )
    holds = [of_pod(2)]
    board = Board(chips=chips)
    assert resource(holds, "all", held_as={2: RESOURCE}, board=board) == [2, 3]


CUTTABLE = replace(
    die(3), family=ChipFamily.ASCEND_910B, board_id=0x41, ai_cores=20, memory_bytes=32 << 30
)
QUARTER = Piece(template="vir05_1c_8g", number=0, vnpu=115)


def test_of_a_chip_that_is_to_move_only_the_held_pieces_stay() -> None:
    """No other is given out, nor the rest of the chip; then it moves."""
    board, cutting = Board(chips=(CUTTABLE,)), Cutting(is_on=True)
    piece = replace(of_claim(3), device="npu-3-vir05-1c-8g-0", piece=QUARTER)

    def names(holds: Collection[Hold], text: str) -> list[str]:
        found = pool_offers(board, holds, Selection.parse(text), cutting=cutting)
        return [offer.name for offer in found]

    assert {"npu-3", piece.device, "npu-3-vir05-1c-8g-1"} <= {*names([piece], "")}
    assert names([piece], "all") == [piece.device]
    assert resource([piece], "all", board=board) == []
    assert names([of_claim(3)], "all") == ["npu-3"]
    assert names([], "all") == []
    assert resource([], "all", board=board) == [3]


def test_a_chip_in_a_resource_is_not_cut() -> None:
    """Nor is one that a pod keeps after the flag has changed, or that waits."""
    board, cutting = Board(chips=(CUTTABLE,)), Cutting(is_on=True)
    for holds, text, leaving in ([], "3", []), ([of_pod(3)], "", []), ([], "", [node(3)]):
        selection = Selection.parse(text)
        assert pool_offers(board, holds, selection, leaving=leaving, cutting=cutting) == ()


def test_a_chip_that_claims_share_stays_in_the_pool() -> None:
    """Until the last share is released."""
    shares = [replace(of_claim(1), share=f"share-{number}") for number in range(2)]
    assert pool(shares, "all") == ["npu-1"]
    assert resource(shares, "all") == [0, 2, 3]
    assert resource([], "all") == [0, 1, 2, 3]


def test_a_module_is_whole_or_not_in_the_pool() -> None:
    """A resource has dies, as with Huawei's device plugin."""
    board = a3(*map(die, range(4)))
    assert pool([], "0", board) == ["module-1"]
    assert resource([], "0", board=board) == [0]
    assert pool([of_pod(3)], "0", board) == []


@given(
    st.lists(st.sampled_from(["free", "claim", "pod", "both"]), min_size=4, max_size=4),
    st.sampled_from(["", "all", "0-1", "2=example.com/a,3"]),
    st.sets(st.integers(0, 3)),
)
def test_no_chip_is_in_two_places(states: list[str], text: str, unused: set[int]) -> None:
    """Whatever is held; what a claim and a pod both have is for neither."""
    holds = [of_claim(number) for number, state in enumerate(states) if state in {"claim", "both"}]
    pods = [number for number, state in enumerate(states) if state in {"pod", "both"}]
    holds += map(of_pod, pods)
    in_pool = {
        chip.physical_id
        for offer in pool_offers(BOARD, holds, Selection.parse(text))
        for chip in offer.chips
    }
    found = resource_chips(
        BOARD,
        holds,
        Selection.parse(text),
        held_as=dict.fromkeys(map(node, pods), RESOURCE),
        unused=frozenset(map(node, unused)),
    )
    in_resources = [chip.physical_id for chips in found.values() for chip in chips]
    assert len(in_resources) == len(set(in_resources))
    assert in_pool.isdisjoint(in_resources)


@pytest.mark.parametrize("text", ["", "all"])
def test_an_empty_board_has_nothing(text: str) -> None:
    """Before the first look."""
    assert pool([], text, Board()) == []
    assert resource([], text, board=Board()) == []
