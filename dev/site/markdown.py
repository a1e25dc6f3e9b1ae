"""What a Markdown page links to, and what of it can be linked to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_FENCE: Final = re.compile(r"^ *(```+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK: Final = re.compile(r"(?<=\]\()[^()\s]+(?=\))")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_BLOCK: Final = re.compile(
    r'^ *```(?P<language>[\w-]+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^ *```$',
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        language: The first word after the fence.
        title: The file that it shows; empty if it has none.
        text: The lines between the fences.
    """

    language: str
    title: str
    text: str


def links(page: str) -> list[str]:
    """The targets of a page's links and pictures, as they are written."""
    return [page[start:end] for start, end in _links(page)]


def with_links(page: str, change: Callable[[str], str]) -> str:
    """The page with other targets."""
    parts, done = [], 0
    for start, end in _links(page):
        parts += [page[done:start], change(page[start:end])]
        done = end
    return "".join((*parts, page[done:]))


def with_table(page: str, head: str, rows: Iterable[str]) -> str:
    """The page with other rows in the table that has this head."""
    before, _, after = page.partition(head)
    others = re.sub(r"\A\n(?:\|.*\n)*", "", after)
    lines = (head, re.sub(r"[^|]+", "---", head), *rows)
    return "".join((before, *(f"{line}\n" for line in lines), others))


def anchors(page: str) -> set[str]:
    """The anchors that GitHub, and the site, give the headings of a page."""
    found: set[str] = set()
    for title in _HEADING.findall(_blanked(page, _FENCE)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(anchor)
    return found


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page that name a language."""
    return [
        Block(found["language"], found["title"] or "", found["text"])
        for found in _BLOCK.finditer(page)
    ]


def with_output(page: str, mark: str, output: str) -> str:
    """The page with that output in the block below a comment."""
    before, begin, rest = page.partition(f"<!-- {mark} -->\n```text\n")
    return f"{before}{begin}{output}```{rest.partition('```')[2]}"


def _links(page: str) -> Iterator[tuple[int, int]]:
    text = _blanked(_blanked(page, _FENCE), _CODE)
    for found in _LINK.finditer(text):
        yield found.span()


def _blanked(page: str, what: re.Pattern[str]) -> str:
    """The page with as many blanks in the place of what is no text."""
    return what.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), page)
