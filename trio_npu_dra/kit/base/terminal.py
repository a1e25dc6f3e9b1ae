"""Text for terminals: foreign text in it neither moves the cursor nor looks like the program's."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Final, TextIO

from trio_npu_dra.kit.base.errors import DriverError

_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Letters that count as printable and show nothing: Default_Ignorable_Code_Point of Unicode, and
the Braille pattern without a dot."""


def visible(text: str) -> str:
    r"""A line in which everything shows, with escapes as in JSON: `\u001b`, `\n`, `\u202e`.

    It escapes characters that control the terminal, end lines, change the direction of writing, or
    show as nothing. JSON keeps its meaning.
    """
    if text.isprintable() and (text.isascii() or not _BLANK.search(text)):
        return text
    return "".join(
        one if one.isprintable() and not _BLANK.match(one) else json.dumps(one)[1:-1]
        for one in text
    )


def say(*lines: str, stream: TextIO | None = None) -> None:
    """Print lines, on standard output by default."""
    print("".join(f"{visible(line)}\n" for line in lines), end="", file=stream, flush=True)


def exit_status(program: str, run: Callable[[], int | None]) -> int:
    """Run a program: its exit status, or 1 after a `DriverError`, which is said in one line."""
    status: int | None = 1
    try:
        status = run()
    except* DriverError as group:
        say_errors(program, group)
    return status or 0


def say_errors(program: str, error: BaseException) -> None:
    """Print a line for an error on standard error, or for each in the groups of nurseries."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            say_errors(program, inner)
    else:
        say(f"{program}: {error}", stream=sys.stderr)
