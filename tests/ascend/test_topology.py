import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from dev.rig.boards import die
from trio_npu_dra.ascend.dcmi.types import Link
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily
from trio_npu_dra.ascend.topology import domains_by_links, link_between
from trio_npu_dra.ascend.traits import TRAITS

A2 = TRAITS[ChipFamily.ASCEND_910B].domain_links
A3 = TRAITS[ChipFamily.ASCEND_910_A3].domain_links


def test_link_six_connects_on_a3_only() -> None:
    """Older libraries for 910B call an unknown link 6, which is SIO on A3."""
    assert domains_by_links({(0, 1): Link.SIO}, A2) == []
    assert domains_by_links({(0, 1): Link.SIO}, A3) == [frozenset({0, 1})]


@given(st.sets(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=40))
def test_domains_are_the_connected_parts(pairs: set[tuple[int, int]]) -> None:
    """Whatever the links: linked chips share a domain, and no chip is in two."""
    pairs = {pair for pair in pairs if pair[0] < pair[1]}
    domains = domains_by_links(dict.fromkeys(pairs, Link.HCCS), A2)
    members = [number for domain in domains for number in domain]
    assert sorted(members) == sorted({number for pair in pairs for number in pair})
    for one, other in pairs:
        assert any({one, other} <= domain for domain in domains)
    for domain in domains:
        for number in domain:
            assert any(number in pair and set(pair) <= domain for pair in pairs)


def two_chips(family: ChipFamily, link: Link) -> tuple[Board, Chip, Chip]:
    """A board of two chips with that link."""
    one, other = (dataclasses.replace(die(number), family=family) for number in (0, 1))
    return Board(chips=(one, other), links={(0, 1): link}), one, other


def test_the_library_says_how_two_chips_are_connected() -> None:
    """In either direction; a chip and itself too."""
    board, one, other = two_chips(ChipFamily.ASCEND_910B, Link.PIX)
    assert link_between(board, one, other) is link_between(board, other, one) is Link.PIX
    assert link_between(board, one, one) is Link.SELF


def test_a_link_that_is_not_known_is_none() -> None:
    """Whether the library says so, by 9 or by the 6 of an older one, or was not asked."""
    assert link_between(*two_chips(ChipFamily.ASCEND_910B, Link.UNKNOWN)) is None
    assert link_between(*two_chips(ChipFamily.ASCEND_910B, Link.SIO)) is None
    assert link_between(*two_chips(ChipFamily.ASCEND_910_A3, Link.SIO)) is Link.SIO
    _, one, other = two_chips(ChipFamily.ASCEND_910, Link.UNKNOWN)
    assert link_between(Board(chips=(one, other)), one, other) is None
