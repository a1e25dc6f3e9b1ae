"""Rows with columns below each other."""

from __future__ import annotations

from collections.abc import Sequence


def lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines; all have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
