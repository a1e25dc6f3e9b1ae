"""Quantities as the API server takes them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from trio_npu_dra.tools.cluster.quantity import parse_quantity, quantity_words


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
