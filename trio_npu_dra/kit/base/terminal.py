"""Text for terminals: foreign text in it neither moves the cursor nor looks like the program's."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Self, TextIO

from trio_npu_dra.kit.base.errors import ConfigError, DriverError, ReaderGone

_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Letters that count as printable and show nothing: Default_Ignorable_Code_Point of Unicode, and
the Braille pattern without a dot."""


class ExitCode(IntEnum):
    """How a program ends; all commands keep this table."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """A code, with its meaning for people."""
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    FINE = 0, "it did what it was asked for, and found no problem"
    FAILED = 1, "it failed, or found problems"
    WRONG_USAGE = 2, "the command line, a flag, a variable or a file that they name is wrong"
    INTERRUPTED = 130, "Ctrl-C ended it"


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
    """Print lines, on standard output by default.

    Raises:
        ReaderGone: Nobody reads them any more.
    """
    write("".join(f"{visible(line)}\n" for line in lines), stream)


def write(text: str, stream: TextIO | None = None) -> None:
    """Print a text as it is: one that we styled, or that is for a shell.

    Raises:
        ReaderGone: Nobody reads it any more.
    """
    stream = stream or sys.stdout
    try:
        print(text, end="", file=stream, flush=True)
    except BrokenPipeError:
        # At its end Python writes what the stream still holds: to where nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise ReaderGone from None


def exit_status(program: str, run: Callable[[], int | None]) -> int:
    """Run a program: its exit status, or that of a `DriverError`, which is printed in one line."""
    status: int | None = ExitCode.FAILED
    try:
        status = run()
    except* KeyboardInterrupt:
        status = ExitCode.INTERRUPTED
    except* ReaderGone:
        status = ExitCode.FAILED
    except* ConfigError as group:
        status = ExitCode.WRONG_USAGE
        say_errors(program, group)
    except* DriverError as group:
        say_errors(program, group)
    return status or ExitCode.FINE


def say_errors(program: str, error: BaseException) -> None:
    """Print a line for an error on standard error, or for each in the groups of nurseries."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            say_errors(program, inner)
    else:
        say(f"{program}: {error}", stream=sys.stderr)
