"""Quantities in the form in which the API server stores them; pure."""

from __future__ import annotations


def canonical_quantity(amount: int) -> str:
    """A whole amount as the API server writes it: `32Gi`, `20`, `1k`.

    The API server rewrites every quantity to the largest suffix that needs no fraction; writing
    another form would look like a difference for ever. Powers of 1024 are taken where one fits.

    Args:
        amount: Not negative; bytes for memory.
    """
    base, suffixes = 1000, ("", "k", "M", "G", "T", "P", "E")
    if amount % 1024 == 0:
        base, suffixes = 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
    power = 0
    while amount and amount % base == 0 and power + 1 < len(suffixes):
        amount, power = amount // base, power + 1
    return f"{amount}{suffixes[power]}"
