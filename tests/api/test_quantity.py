"""Quantities as the API server takes them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra.kit.api.quantity import canonical_quantity, parse_quantity
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
    """The API server refuses them too; a large exponent would cost much."""
    with pytest.raises(ValueError, match=r"no quantity|exponent"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("amount", "written"), [(65452 << 20, "65452Mi"), (1000, "1k"), (0, "0"), (1536, "1536")]
)
def test_quantities_are_canonical(amount: int, written: str) -> None:
    """Written as the API server would rewrite them."""
    assert canonical_quantity(amount) == written


@given(amount=st.integers(0, 1 << 60))
def test_any_quantity_is_canonical_and_exact(amount: int) -> None:
    """The server would rewrite none, and the parser gets the amount back."""
    written = canonical_quantity(amount)
    assert canonical(written) == written
    assert parse_quantity(written) == amount
