"""Joins texts to one line of limited length."""

from __future__ import annotations

from collections.abc import Sequence


def joined(parts: Sequence[str], limit: int) -> str:
    """The first of *parts*, as many as fit into *limit* characters, and how many more there are.

    A first part that is too long is cut.
    """
    for count in range(len(parts), 0, -1):
        left = len(parts) - count
        line = "; ".join(parts[:count]) + (f"; and {left} more" if left else "")
        if len(line) <= limit:
            return line
    return f"{parts[0][: limit - 3]}..." if parts else ""
