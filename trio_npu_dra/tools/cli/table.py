"""Lines for people, styled where they are made; and tables of such lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Style(StrEnum):
    """What a style says, and how it looks, as rich names it."""

    GOOD = "green"
    WARNING = "yellow"
    BAD = "bold red"
    TITLE = "bold"


@dataclass(frozen=True, slots=True)
class Styled:
    """Text with a style."""

    text: str
    style: Style


Part = str | Styled
Line = str | tuple[Part, ...]
"""A line, or a cell of a table."""


def parts(line: Line) -> tuple[Part, ...]:
    """The parts of a line; a plain text is its only part."""
    return (line,) if isinstance(line, str) else line


def with_styles(line: Line) -> Iterator[tuple[str, str]]:
    """The parts of a line, each with its style; empty for none."""
    for part in parts(line):
        yield (part, "") if isinstance(part, str) else (part.text, part.style)


def plain(line: Line) -> str:
    """A line without its styles."""
    return "".join(text for text, _ in with_styles(line))


def columns(rows: Sequence[Sequence[Line]]) -> Iterator[Line]:
    """The rows with columns below each other; all have the same number of cells."""
    widths = [max(len(plain(cell)) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        line: list[Part] = []
        for cell, width in zip(row, widths, strict=True):
            line += (*parts(cell), " " * (width + 2 - len(plain(cell))))
        yield tuple(line)


def lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """The same without styles."""
    return [plain(line).rstrip() for line in columns(rows)]
