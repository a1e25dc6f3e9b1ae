"""Promises of the names of slices."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trio_npu_dra.kit.pool.names import generate_name, index_in


@given(
    node=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,200}[a-z0-9])?", fullmatch=True),
    index=st.integers(0, 0xFFFFF),
)
@example(node="n" * 253, index=0)
def test_the_index_survives_every_node_name(node: str, index: int) -> None:
    """The API server cuts generateName at 58 characters: the index is before that."""
    base = generate_name(node, "npu.huawei.com", index)
    assert len(base) <= 58
    assert index_in(f"{base}abcde", node, "npu.huawei.com") == index
    assert re.search(r"[a-z0-9]-[0-9a-f]{5}-$", base)


def test_a_name_is_used_as_far_as_it_fits() -> None:
    """51 characters of node and driver, and never a dot or a dash before the index."""
    assert generate_name("n" * 60, "npu.huawei.com", 10) == "n" * 51 + "-0000a-"
    assert generate_name("n" * 47, "npu.huawei.com", 0) == "n" * 47 + "-npu-00000-"


@pytest.mark.parametrize("name", ["n-d.io-0000A-x", "m-d.io-00000-x", "n-e.io-00000-x", "00000-x"])
def test_other_names_have_no_index(name: str) -> None:
    """Other nodes, other drivers, capitals: not ours."""
    assert index_in(name, "n", "d.io") is None
