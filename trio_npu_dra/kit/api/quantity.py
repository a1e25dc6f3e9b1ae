"""Kubernetes quantities as exact numbers: `32Gi`, `500m`, `1.5`, `2e3`."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

_FORM: Final = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"
)
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")
_FACTORS: Final[dict[str, Fraction]] = {
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate(("", "m", "u", "n"))},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(_DECIMAL)},
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(_BINARY)},
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
    if suffix in _FACTORS:
        return amount * _FACTORS[suffix]
    exponent = int(suffix[1:])
    if abs(exponent) > _EXPONENT_LIMIT:
        raise ValueError(f"{text!r} has an exponent of more than {_EXPONENT_LIMIT}")
    return amount * Fraction(f"1e{exponent}")


def canonical_quantity(amount: int) -> str:
    """A whole amount, not negative, as the API server writes it: `32Gi`, `20`, `1k`.

    The API server rewrites every quantity to the largest suffix that needs no fraction, so another
    form would look like a difference for ever. Powers of 1024 win where one fits.
    """
    base, suffixes = (1024, _BINARY) if amount % 1024 == 0 else (1000, _DECIMAL)
    power = 0
    while amount and amount % base == 0 and power + 1 < len(suffixes):
        amount, power = amount // base, power + 1
    return f"{amount}{suffixes[power]}"
