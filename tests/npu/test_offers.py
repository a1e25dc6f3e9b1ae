"""What the chips of a Board may be handed out as."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.npu.boards import a3, die
from trio_npu_dra.npu.dcmi.types import MultiDiePolicy
from trio_npu_dra.npu.model import Board
from trio_npu_dra.npu.offers import OfferKind, offers


def names(board: Board) -> list[str]:
    """The offers' names, in their order."""
    return [offer.name for offer in offers(board)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MultiDiePolicy.UNION, ["module-0", "module-1"]),
        (MultiDiePolicy.INDEPENDENT, ["npu-0", "npu-1", "npu-2", "npu-3"]),
        (None, ["module-0", "module-1"]),
    ],
)
def test_the_policy_says_whether_dies_go_together(
    policy: MultiDiePolicy | None, expected: list[str]
) -> None:
    """A driver that does not tell gives both: that works under either policy."""
    board = a3(*map(die, range(4)), policy=policy)
    assert names(board) == expected
    assert [chip for offer in offers(board) for chip in offer.chips] == list(board.chips)


def test_a_module_has_both_dies() -> None:
    """Its kind, its chips and their device nodes."""
    (module,) = offers(a3(die(6), die(7)))
    assert (module.name, module.kind) == ("module-3", OfferKind.MODULE)
    assert module.device_nodes == {"/dev/davinci6", "/dev/davinci7"}


def test_a_lone_die_is_handed_out_only_where_dies_are_independent() -> None:
    """Its sister never answered, or has another physical id now."""
    assert names(a3(die(0), die(1), die(2))) == ["module-0"]
    assert names(a3(die(2), policy=MultiDiePolicy.INDEPENDENT)) == ["npu-2"]


def test_a_chip_that_is_split_into_vnpus_is_not_handed_out_whole() -> None:
    """Nor is the module whose die it is."""
    split = (die(0), die(1, vnpus=[116]), die(2), die(3))
    assert names(a3(*split)) == ["module-1"]
    assert names(a3(*split, policy=MultiDiePolicy.INDEPENDENT)) == ["npu-0", "npu-2", "npu-3"]


def test_a_module_with_a_die_that_is_gone_is_as_gone() -> None:
    """It is the holds that say who still sees it."""
    assert [offer.gone for offer in offers(a3(die(0), die(1, gone=True), die(2), die(3)))] == [
        True,
        False,
    ]


def test_a_gone_die_of_a_card_that_had_the_number_before_hides_no_module() -> None:
    """After cards were renumbered."""
    left = replace(die(8, gone=True), card_id=0)
    (module,) = offers(a3(die(0), die(1), left))
    assert [chip.name for chip in module.chips] == ["npu-0", "npu-1"]
