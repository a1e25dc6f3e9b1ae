"""The messages about a wrong command line, and how programs end."""

from __future__ import annotations

import pytest

from trio_npu_dra.kit.base.command_line import CommandLine
from trio_npu_dra.kit.base.errors import ConfigError, ControlError, ReaderGone
from trio_npu_dra.kit.base.terminal import exit_status


def parser() -> CommandLine:
    """A program with a command, a flag and a switch."""
    made = CommandLine("lamp", "Switch lamps.", commands={"dim": "make it darker"})
    made.add_argument("command", choices=("dim", "bright"), metavar="COMMAND")
    made.add_argument("lamp", nargs="?")
    made.add_argument("-c", "--colour", choices=("red", "green", "blue"))
    made.add_argument("-s", "--slow", action="store_true")
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["dim", "desk", "-s", "--colour=red"],
        ["-s", "--colour", "red", "dim", "desk"],
        ["dim", "-s", "desk", "-c", "red"],
        ["dim", "-sc", "red", "desk"],
        ["dim", "-scred", "desk"],
        ["-s", "--colour=red", "--", "dim", "desk"],
        ["dim", "-s", "-c", "red", "--", "desk"],
    ],
)
def test_flags_may_stand_anywhere(words: list[str]) -> None:
    """Also between two arguments of which the second may be left out."""
    given = parser().read(words)
    assert vars(given) == {"command": "dim", "lamp": "desk", "colour": "red", "slow": True}


def test_a_dash_alone_and_a_word_after_two_are_no_flags() -> None:
    """Files may be called so."""
    assert parser().read(["dim", "-"]).lamp == "-"
    assert parser().read(["dim", "--", "-s"]).lamp == "-s"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["din"], "COMMAND din: must be dim or bright; did you mean dim?"),
        (
            ["dim", "--colour=gren"],
            "--colour=gren: must be red, green or blue; did you mean green?",
        ),
        (["dim", "-c", "pink"], "--colour=pink: must be red, green or blue"),
        (["dim", "--color=red"], "there is no flag --color; did you mean --colour?"),
        (["dim", "--col", "red"], "there is no flag --col; did you mean --colour?"),
        (["--colur"], "there is no flag --colur; did you mean --colour?"),
        (["dim", "--zzz"], "there is no flag --zzz"),
        (["dim", "-x"], "there is no flag -x"),
        (["dim", "desk", "now"], "there is no argument now"),
        ([], "the following arguments are required: COMMAND"),
        (["dim", "-c"], "argument -c/--colour: expected one argument"),
        (["dim", "-sc"], "argument -c/--colour: expected one argument"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names what is wrong, what is allowed, and what may have been meant."""
    with pytest.raises(SystemExit) as caught:
        parser().read(words)

    assert caught.value.code == 2
    assert capsys.readouterr().err == f"lamp: {said} (see lamp --help)\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ControlError("no lamp"), 1, "lamp: no lamp\n"),
        (ConfigError("no such lamp"), 2, "lamp: no such lamp\n"),
        (
            ExceptionGroup("", [ControlError("no lamp"), ConfigError("no such lamp")]),
            2,
            "lamp: no such lamp\nlamp: no lamp\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (ReaderGone(), 1, ""),
    ],
)
def test_an_error_is_a_line_and_an_exit_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the caller gave wrongly is distinguished from what failed."""

    def fail() -> None:
        raise error

    assert exit_status("lamp", fail) == code
    assert capsys.readouterr().err == said


def test_other_errors_are_faults_of_the_program() -> None:
    """They stay what they are, with their traceback."""

    def fail() -> None:
        raise BaseExceptionGroup("", [ConfigError("no such lamp"), ValueError("a bug")])

    with pytest.RaisesGroup(ValueError):
        exit_status("lamp", fail)
