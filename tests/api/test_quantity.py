"""Quantities as the API server takes them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra.kit.api.quantity import canonical_quantity, parse_quantity, quantity_words
from trio_npu_dra.lab.standins.api_rules import canonical


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("32Gi", 32 << 30),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (".5k", 500),
        ("2e3", 2000),
        ("1E", 10**18),
        ("-4Mi", -4 << 20),
        ("0", 0),
    ],
)
def test_quantities_are_exact(text: str, amount: Fraction) -> None:
    """No amount is rounded."""
    assert parse_quantity(text) == amount


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "0x1", "1e99", "٣"])
def test_other_texts_are_no_quantities(text: str) -> None:
    """As little as for the API server, and nothing that would cost much."""
    with pytest.raises(ValueError, match=r"no quantity|exponent"):
        parse_quantity(text)


def test_words() -> None:
    """The largest binary suffix that divides it."""
    assert [quantity_words(parse_quantity(one)) for one in ("32768Mi", "4", "1500m", "1000")] == [
        "32Gi",
        "4",
        "1.5",
        "1000",
    ]


@pytest.mark.parametrize(
    ("amount", "written"),
    [
        (32 << 30, "32Gi"),
        (65452 << 20, "65452Mi"),
        (1 << 40, "1Ti"),
        (20, "20"),
        (1000, "1k"),
        (0, "0"),
        (1536, "1536"),
        (1536 << 10, "1536Ki"),
        (24_000_000_001, "24000000001"),
    ],
)
def test_quantities_are_canonical(amount: int, written: str) -> None:
    """Written as the API server would rewrite them."""
    assert canonical_quantity(amount) == written


@given(amount=st.integers(0, 1 << 50))
def test_the_server_leaves_a_quantity_as_it_is(amount: int) -> None:
    """Whatever the amount, there is nothing to rewrite."""
    assert canonical(canonical_quantity(amount)) == canonical_quantity(amount)


@given(st.integers(0, 1 << 60))
def test_a_quantity_can_be_read_again(amount: int) -> None:
    """Whatever its suffix."""
    assert parse_quantity(canonical_quantity(amount)) == amount
