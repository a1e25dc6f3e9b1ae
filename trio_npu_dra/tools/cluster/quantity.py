"""Kubernetes quantities as exact numbers: `32Gi`, `500m`, `1.5`, `2e3`."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

_FORM: Final = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"
)
_DECIMAL: Final[dict[str, Fraction]] = {suffix: Fraction(f"1e{power}") for suffix, power in zip(
    ("n", "u", "m", "k", "M", "G", "T", "P", "E"), (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True
)}  # fmt: skip
_BINARY: Final[dict[str, int]] = {
    f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)
}
_EXPONENT_LIMIT: Final = 30


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Fraction:
    """The amount of a quantity.

    Raises:
        ValueError: It is no quantity.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    sign, number, suffix = match.groups(default="")
    amount = Fraction(number) * (-1 if sign == "-" else 1)
    if suffix in _BINARY:
        return amount * _BINARY[suffix]
    if suffix in _DECIMAL:
        return amount * _DECIMAL[suffix]
    exponent = int(suffix[1:]) if suffix else 0
    if abs(exponent) > _EXPONENT_LIMIT:
        raise ValueError(f"{text!r} has an exponent of more than {_EXPONENT_LIMIT}")
    return amount * Fraction(f"1e{exponent}")


def quantity_words(amount: Fraction) -> str:
    """An amount for people: the largest binary suffix that divides it, else a plain number."""
    if amount.denominator != 1:
        return f"{float(amount):g}"
    for suffix, factor in reversed(_BINARY.items()):
        if amount and amount % factor == 0:
            return f"{amount // factor}{suffix}"
    return str(amount)
