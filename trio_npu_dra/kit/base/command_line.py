"""Command lines that are wrong: one line says what is, and what may have been meant."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from trio_npu_dra.kit.base.terminal import ExitCode, say


class ShowVersion(argparse.Action):
    """Finds out the version when it is asked for: that takes a while in a clone."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, *, tell: Callable[[], str]
    ) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")
        self._tell = tell

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Say it, and end."""
        say(f"{parser.prog.replace(' ', '-')} {self._tell()}")
        parser.exit()


class CommandLine(argparse.ArgumentParser):
    """The parser of all programs; a flag is written out, as those of kubectl are.

    Python suggests what may have been meant since 3.14, and only of choices.
    """

    def __init__(self, prog: str, description: str, *, commands: Mapping[str, str] = {}) -> None:
        width = max(map(len, commands), default=0) + 2
        listed = [f"  {name:<{width}}{text}" for name, text in commands.items()]
        codes = [f"  {code:<5}{code.meaning}" for code in ExitCode]
        super().__init__(
            prog=prog,
            description=description,
            epilog="\n".join(
                [*(["commands:", *listed, ""] if commands else []), "exit codes:", *codes]
            ),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments after the program's name.

        Raises:
            SystemExit: They are wrong, and the error is printed; or ask for help or the version.
        """
        for word in takewhile(lambda word: word != "--", words):
            if word.startswith("--"):  # no value does, but after an =
                self._check_flag(word)
        given, unknown = self.parse_known_args(self.ordered(words))
        for word in unknown:
            self._check_flag(word)
            self.error(f"there is no argument {word}")
        return given

    def ordered(self, words: Sequence[str]) -> list[str]:
        """The arguments with flags first, and last a flag whose value is missing.

        argparse takes no flag between two arguments that may be left out.
        """
        flags: list[str] = []
        arguments: list[str] = []
        left = list(words)
        while left:
            word = left.pop(0)
            takes_next = word not in {"-", "--"} and self._takes_next(word)
            if word == "--" or (takes_next and not left):
                return [*flags, *arguments, word, *left]
            if takes_next:
                flags += (word, left.pop(0))
            else:
                (flags if word[:1] == "-" and word != "-" else arguments).append(word)
        return [*flags, *arguments]

    def _takes_next(self, word: str) -> bool:
        """Whether the value of a flag is the next word; a word may have several short flags."""
        if word in self._option_string_actions:
            return self._takes_value(word)
        if word[:1] != "-" or word[:2] == "--":
            return False
        for end, letter in enumerate(word[1:], 2):
            if f"-{letter}" not in self._option_string_actions:
                return False
            if self._takes_value(f"-{letter}"):
                return end == len(word)
        return False

    def _takes_value(self, flag: str) -> bool:
        return self._option_string_actions[flag].nargs != 0

    def _check_flag(self, word: str) -> None:
        name = word.partition("=")[0]
        if name.startswith("-") and name not in self._option_string_actions:
            self.error(f"there is no flag {name}{suggestion(name, self._option_string_actions)}")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end the program."""
        say(f"{self.prog}: {message} (see {self.prog} --help)", stream=sys.stderr)
        raise SystemExit(ExitCode.WRONG_USAGE)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = (
                action.option_strings[-1] + "=" if action.option_strings else f"{action.metavar} "
            )
            self.error(f"{name}{value}: {must_be_one_of(action.choices, value)}")


def must_be_one_of(choices: Iterable[str], value: str) -> str:
    """Why *value* is refused: `must be none or shares; did you mean shares?`."""
    *others, last = choices
    allowed = f"{', '.join(others)} or {last}" if others else last
    return f"must be {allowed}{suggestion(value, (*others, last))}"


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of a refusal of *word*: the known word that is most like it; empty if none is."""
    return "".join(
        f"; did you mean {likely}?" for likely in difflib.get_close_matches(word, known, n=1)
    )
