"""Whole quantities as the API server writes them."""

from __future__ import annotations

from typing import Final

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")


def canonical_quantity(amount: int) -> str:
    """A whole amount as the API server writes it: `32Gi`, `20`, `1k`.

    The API server rewrites every quantity to the largest suffix that needs no fraction; writing
    another form would look like a difference for ever. Powers of 1024 are taken where one fits.

    Args:
        amount: Not negative; bytes for memory.
    """
    base, suffixes = 1000, _DECIMAL
    if amount % 1024 == 0:
        base, suffixes = 1024, _BINARY
    power = 0
    while amount and amount % base == 0 and power + 1 < len(suffixes):
        amount, power = amount // base, power + 1
    return f"{amount}{suffixes[power]}"


def amount_of(quantity: str) -> int:
    """The amount that `canonical_quantity` has written."""
    number = quantity.rstrip("EGKMPTik")
    suffix = quantity.removeprefix(number)
    if suffix in _BINARY:
        return int(number) * int(1024 ** _BINARY.index(suffix))
    return int(number) * int(1000 ** _DECIMAL.index(suffix))
