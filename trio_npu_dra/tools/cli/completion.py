"""`npu-dra completion`: lets a shell complete `npu-dra`; also finds the candidates for it."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from argcomplete.completers import BaseCompleter, FilesCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

from trio_npu_dra.kit.base.command_line import CommandLine
from trio_npu_dra.kit.base.terminal import write

_SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = frozenset({"DIR", "FILE", "PATH"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument(
        "shell",
        choices=_SHELLS,
        metavar="SHELL",
        help=f"one of {', '.join(_SHELLS)}; it evaluates the script when it starts",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    write(shellcode(["npu-dra"], shell=arguments.shell))
    return 0


class _OfHelp(BaseCompleter):
    """The values that the help of a flag has in braces, or the files that a flag may name."""

    def __call__(self, *, prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
        shown = str(action.metavar)
        if shown.startswith("{"):
            return shown.strip("{}").split(",")
        return FilesCompleter()(prefix) if shown in _FILES else ()


def answer(
    parser: CommandLine, commands: Collection[str], parser_of: Callable[[str], CommandLine]
) -> None:
    """Give candidates to the shell that has started `npu-dra` for them, and end the process.

    Its variables `COMP_LINE` and `COMP_POINT` say what is on its command line. Behind one of the
    *commands* the parser of this command knows the candidates.
    """
    words = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    if len(words) > 1 and words[1] in commands:
        parser = parser_of(words[1])
        os.environ["_ARGCOMPLETE"] = "2"  # that many words are the program
    CompletionFinder()(parser, always_complete_options=False, default_completer=_OfHelp())


def candidates(parser: CommandLine, words: Sequence[str], values: BaseCompleter) -> dict[str, str]:
    """What the last of the *words* may become, each with its description.

    *values* knows the values without choices. Of `--flag=value` candidates are the value alone.
    """
    *before, last = words
    if last.startswith("--") and "=" in last:
        flag, _, last = last.partition("=")
        before.append(flag)
    if last and shlex.quote(last) != last:
        return {}  # no name has such characters
    finder = CompletionFinder(
        parser, always_complete_options=False, default_completer=values, append_space=False
    )
    line = f"{shlex.join(parser.ordered(before))} {last}"
    found: list[str] = []
    while (end := finder.rl_complete(line, len(found))) is not None:
        found.append(last + end.removeprefix(line))
    described = finder.get_display_completions()
    return {each: described.get(each) or "" for each in found}
