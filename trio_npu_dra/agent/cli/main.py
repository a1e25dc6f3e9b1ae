"""`npu-dra`: parse the command line, run one subcommand, turn its errors into one clear line."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from trio_npu_dra.kit.base.command_line import CommandLine, ShowVersion
from trio_npu_dra.kit.base.errors import DriverError
from trio_npu_dra.kit.base.terminal import exit_status
from trio_npu_dra.revision import full_version

COMMANDS = {
    "serve": "run the node agent (what the DaemonSet runs)",
    "health": "show how the NPUs of the running daemon are, or release one (root)",
    "inspect": "show what this node would publish, or how its NPUs are connected; needs no cluster",
    "doctor": "say what else on this node serves NPUs, what is in the way, and what to do (root)",
    "ranktable": "make the rank table of a job, or its launchers' variables, from its claims",
    "simulate": "make a simulated Ascend board in a folder",
    "demo": "run the daemon on a simulated board against stand-ins; needs no cluster and no root",
    "completion": "print the script that lets a shell complete these commands and their flags",
}
_PACKAGES = {
    "serve": "agent",
    "simulate": "lab",
    "demo": "lab",
}  # all others are tools
_EXTRAS = {"completion": "cli"}  # all others need `node`


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: *arguments* are those after `npu-dra`, else the process's own.

    Returns:
        The exit code (`ExitCode`).

    Raises:
        SystemExit: The command line is wrong, or asks for help or the version.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = CommandLine(
        "npu-dra", "Kubernetes DRA driver for Huawei Ascend NPUs", commands=COMMANDS
    )
    parser.add_argument("--version", action=ShowVersion, tell=full_version)
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    if "_ARGCOMPLETE" in os.environ:  # a shell asks, see `npu-dra completion`
        _imported("completion").answer(parser, COMMANDS, _flags_of)
    chosen = parser.read(words[:1]).command
    return exit_status(f"npu-dra {chosen}", lambda: _run(chosen, words[1:]))


def _run(name: str, words: Sequence[str]) -> int | None:
    given = _flags_of(name).read(words)
    status: int | None = _imported(name).run(given)
    return status


def _flags_of(command: str) -> CommandLine:
    """What may be behind a command."""
    flags = CommandLine(f"npu-dra {command}", COMMANDS[command])
    _imported(command).add_arguments(flags)
    return flags


def _imported(command: str) -> ModuleType:
    """Import the module of the chosen command: `npu-dra --help` must not load the gRPC stack.

    The garbage collector is off meanwhile, and afterwards ignores what modules have made, which
    stays. If it looked through that, a prepare would take 10 % longer (`just bench`), and a full
    collection would stop the event loop for tens of milliseconds.

    Raises:
        DriverError: It needs a package of an extra that is not installed.
    """
    gc.disable()
    try:
        home = _PACKAGES.get(command, "tools")
        return importlib.import_module(f"trio_npu_dra.{home}.cli.{command}")
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package == "trio_npu_dra":
            raise
        extra = _EXTRAS.get(command, "node")
        raise DriverError(
            f"the Python package {package} is missing: install trio-npu-dra[{extra}]"
        ) from error
    finally:
        gc.freeze()
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
