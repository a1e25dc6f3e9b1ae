from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra.ascend.dcmi.types import Link
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.topology import domains_by_links
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
