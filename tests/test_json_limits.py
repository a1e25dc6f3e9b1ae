"""How deep JSON is nested is known before a parser goes down."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra import json_limits

SCALARS = st.none() | st.text(alphabet='[]{}"\\a', max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(SCALARS.map(str), inner, max_size=3)
    ),
    max_leaves=12,
)


def depth_of(value: Any) -> int:
    """Levels of lists and dicts."""
    if not isinstance(value, (list, dict)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth_of, inner), default=0)


@given(VALUES)
def test_the_limit_is_exact_whatever_strings_hold(value: Any) -> None:
    """Brackets, quotes and backslashes inside of strings count for nothing."""
    data, depth = json.dumps(value).encode(), depth_of(value)

    json_limits.check(data, depth=depth)
    if depth:
        with pytest.raises(ValueError, match=f"nested more than {depth - 1} levels deep"):
            json_limits.check(data, depth=depth - 1)


@pytest.mark.parametrize(
    "deep",
    [
        b"[" * 1_000_000,
        b"[" * 1_000_000 + b"]" * 1_000_000,
        b'{"a":' * 100_000,
        b"[]" * 100_000 + b"[" * 30,
        b'["\\\\",' * 30,
        b'["\\"]",' * 30,
        b"{]" * 10 + b"[" * 30,
    ],
    ids=["open", "closed", "objects", "late", "backslash", "quote", "wrong"],
)
def test_what_is_too_deep_is_refused_whole_or_not(deep: bytes) -> None:
    """A parser would go down before it comes to what is wrong."""
    with pytest.raises(ValueError, match="nested more than 20 levels deep"):
        json_limits.check(deep, depth=20)


@pytest.mark.parametrize("cut", [b'{"a": [', b'{"a": "[[[[', b"]]]", b"", b'"'])
def test_what_is_cut_short_but_shallow_is_left_to_the_parser(cut: bytes) -> None:
    """Its words for what is wrong are better."""
    json_limits.check(cut, depth=20)
