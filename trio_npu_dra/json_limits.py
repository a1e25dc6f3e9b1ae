"""How deep JSON may be nested, found out before a parser follows it down.

Parsers go down by recursion: Python's raises RecursionError from within whatever called it, and
the limits of others are their own. So bytes from outside are measured first, without recursion.
"""

from __future__ import annotations

import re
from typing import Final

_TO_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_STRUCTURE: Final = bytes(sorted(set(range(256)) - set(b'"[]{}')))
_STRING: Final = re.compile(rb'"[^"]*"')


def check(data: bytes, *, depth: int) -> None:
    """Refuse JSON whose arrays and objects lie more than *depth* deep in one another.

    Text that is no JSON may pass or be refused. If it passes, a parser that reads it to the first
    wrong byte goes down *depth* levels at the most. A few passes in C over the bytes.

    Args:
        data: UTF-8, to be given to a parser that takes nothing else.
        depth: Levels; `{"a": [1]}` has two.

    Raises:
        ValueError: It is nested deeper.
    """
    if data.count(b"[") + data.count(b"{") <= depth:
        return
    # Removing each "[]" takes one level, the innermost one, off everything that is nested.
    nesting, hopeless = _brackets(data), b"[" * (depth + 1)
    for level in range(depth + 1):
        if level + nesting.count(b"[") <= depth:
            return
        if hopeless in nesting:
            break
        nesting = nesting.replace(b"[]", b"")
    raise ValueError(f"JSON is nested more than {depth} levels deep")


def _brackets(data: bytes) -> bytes:
    """The brackets and braces outside of strings, all as brackets."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = data.translate(_TO_BRACKETS, _ALL_BUT_STRUCTURE)
    # Quotes come in pairs, an opening and a closing one. Two neighbours can go whichever they are:
    # there is nothing between them, and every other quote stays what it was.
    return _STRING.sub(b"", structure.replace(b'""', b""))
