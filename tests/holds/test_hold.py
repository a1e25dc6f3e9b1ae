"""Whether two can have the same at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.holds.entries import hold
from trio_npu_dra.agent.holds.hold import Hold, HolderKind, conflict, holds_of
from trio_npu_dra.ascend.partition import Partition

BY_HAND = [Partition(template="vir02", vnpu=vnpu) for vnpu in (132, 133)]
ON_DEMAND = [Partition(template="vir02", number=number) for number in (0, 1)]
DIE_2, DIE_3, MODULE_1 = hold("a", 2), hold("a", 3), hold("a", 2, 3, device="module-1")


@pytest.mark.parametrize(
    ("wanted", "held", "is_refused"),
    [
        (hold("b", 2), DIE_2, True),
        (hold("b", 3), DIE_2, False),
        (hold("a", 2), DIE_2, False),
        (hold("b", 2, observer=True), DIE_2, False),
        (hold("b", 2), hold("a", 2, observer=True), False),
        (hold("b", 2), MODULE_1, True),
        (hold("b", 3), MODULE_1, True),
        (hold("b", 4), MODULE_1, False),
        (hold("b", 2, 3, device="module-1"), DIE_3, True),
        (hold("b", 2, 3, device="module-1"), MODULE_1, True),
        (hold("b", 2, 3, device="module-1", observer=True), DIE_3, False),
        (hold("b", 2, share="1"), hold("a", 2, share="2"), False),
        (hold("b", 2, share="1"), hold("a", 2, share="1"), True),
        (hold("b", 2, share="1"), hold("p", 2, share="2", kind=HolderKind.POD), True),
        (hold("p", 2, share="1", kind=HolderKind.POD), hold("a", 2, share="2"), True),
        (
            hold("p", 2, share="1", kind=HolderKind.POD),
            hold("q", 2, share="2", kind=HolderKind.POD),
            False,
        ),
        (
            hold("p", 2, share="1", kind=HolderKind.POD),
            hold("q", 2, share="1", kind=HolderKind.POD),
            True,
        ),
        (hold("b", 2, share="1"), DIE_2, True),
        (hold("b", 2), hold("a", 2, share="1"), True),
        (hold("b", 2, share="1"), MODULE_1, True),
        (hold("b", 2, share="1"), hold("a", 2, 3, device="module-1", share="2"), True),
        (hold("b", 2, partition=BY_HAND[0]), hold("a", 2, partition=BY_HAND[1]), False),
        (hold("b", 2, partition=BY_HAND[0]), hold("a", 2, partition=BY_HAND[0]), True),
        (hold("b", 2, partition=BY_HAND[0]), DIE_2, True),
        (hold("b", 2), hold("a", 2, partition=BY_HAND[0]), True),
        (hold("b", 2, 3, device="module-1"), hold("a", 2, partition=BY_HAND[0]), True),
        (hold("b", 2, partition=BY_HAND[0]), DIE_3, False),
        (hold("b", 2, partition=BY_HAND[0], observer=True), DIE_2, False),
        (hold("b", 2, partition=ON_DEMAND[0]), hold("a", 2, partition=ON_DEMAND[1]), False),
        (hold("b", 2, partition=ON_DEMAND[0]), hold("a", 2, partition=ON_DEMAND[0]), True),
        (
            hold("b", 2, partition=ON_DEMAND[0]),
            hold("a", 2, partition=replace(ON_DEMAND[0], vnpu=132)),
            True,
        ),
        (hold("b", 2, partition=ON_DEMAND[0]), hold("a", 2, partition=BY_HAND[0]), False),
        (
            hold("b", 2, partition=BY_HAND[0]),
            hold("a", 2, partition=replace(ON_DEMAND[1], vnpu=132)),
            True,
        ),
    ],
)
def test_holders_exclude_each_other_by_their_chips(
    wanted: Hold, held: Hold, is_refused: bool
) -> None:
    """A module overlaps with its dies, a partition with its chip.

    A hold with admin access excludes nobody. Two holds of one holder, two shares and two partitions
    of a chip do not exclude each other, but a claim's share and a pod's do: each are counted
    without the other. A vNPU is one partition, by the number it was cut for and by its id.
    """
    assert conflict(wanted, [hold("x", 7), held]) == (held if is_refused else None)


def test_names_are_never_compared() -> None:
    """A node that was renamed, or a policy that was changed, gives chips other names."""
    assert conflict(hold("b", 2, device="old"), [hold("a", 3, device="old")]) is None
    held = hold("a", 2, device="old")
    assert conflict(hold("b", 2, device="new"), [held]) is held


def test_the_first_that_is_in_the_way_is_named() -> None:
    """In the order of the others."""
    others = [hold("a", 3), hold("c", 2), hold("d", 2, 3)]
    assert conflict(hold("b", 2), others) is others[1]
    assert conflict(hold("b", 2), []) is None


def test_who_holds_a_chip_is_who_has_it_for_himself() -> None:
    """By itself or in a module; a holder with admin access has nothing."""
    holds = [DIE_2, MODULE_1, hold("c", 2, observer=True), hold("d", 4)]
    assert holds_of(["/dev/davinci2"], holds) == (DIE_2, MODULE_1)
    assert holds_of(["/dev/davinci3", "/dev/davinci4"], holds) == (MODULE_1, holds[3])
    assert holds_of(["/dev/davinci9"], holds) == ()
