import dataclasses
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dev.rig.boards import die
from trio_npu_dra.ascend.dcmi.types import Link
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily
from trio_npu_dra.ascend.topology import domains_by_links, link_between, name_groups, rings
from trio_npu_dra.ascend.traits import TRAITS

A2 = TRAITS[ChipFamily.ASCEND_910B].domain_links
A3 = TRAITS[ChipFamily.ASCEND_910_A3].domain_links


def links(ids: range, link: Link) -> dict[tuple[int, int], Link]:
    """The same link between all of *ids*."""
    return dict.fromkeys(combinations(ids, 2), link)


def test_a_full_mesh_is_one_ring() -> None:
    """Eight 910B chips that all see each other over HCCS are ring-0."""
    groups = name_groups(domains_by_links(links(range(8), Link.HCCS), A2))
    assert groups == dict.fromkeys(range(8), "ring-0")


def test_two_meshes_are_two_rings_named_in_order() -> None:
    """A box with 2x8 chips has two rings; ring-0 has the lowest physical id."""
    between = {(one, other): Link.SYS for one in range(8) for other in range(8, 16)}
    matrix = links(range(8, 16), Link.HCCS) | links(range(8), Link.HCCS) | between
    groups = name_groups(domains_by_links(matrix, A2))
    assert groups[7] == "ring-0"
    assert groups[8] == groups[15] == "ring-1"
    assert name_groups([frozenset({2, 3}), frozenset({0, 1})])[0] == "ring-0"


def test_the_dies_of_an_a3_board_are_one_ring() -> None:
    """On A3 the link inside a card (SIO) and the switched links between cards connect alike."""
    matrix = links(range(4), Link.HCCS_SWITCHED) | {(0, 1): Link.SIO, (2, 3): Link.SIO}
    assert domains_by_links(matrix, A3) == [frozenset(range(4))]


def test_link_six_connects_on_a3_only() -> None:
    """Older libraries for 910B call an unknown link 6, which is SIO on A3."""
    assert domains_by_links({(0, 1): Link.SIO}, A2) == []
    assert domains_by_links({(0, 1): Link.SIO}, A3) == [frozenset({0, 1})]


def test_chips_on_pcie_are_in_no_group() -> None:
    """Chips that meet on a host bridge get no topology group."""
    assert name_groups(domains_by_links(links(range(4), Link.PHB), A2)) == {}


def test_the_first_910_has_rings_of_four() -> None:
    """A 910 board, which cannot be asked, has the rings 0-3 and 4-7."""
    groups = name_groups(rings(range(8), 4))
    assert [groups[number] for number in range(8)] == ["ring-0"] * 4 + ["ring-1"] * 4


@given(st.sets(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=40))
def test_domains_are_the_connected_parts(pairs: set[tuple[int, int]]) -> None:
    """Whatever the links: linked chips share a domain, and nobody is in two."""
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
