"""`kubectl npu`: the cluster's NPUs, their holders, why a pod waits for one, and what is wrong.

It reads and never writes. It needs the extra `cli` of the package.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import trio
import yaml

from trio_npu_dra.agent.config.model import DRIVER
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import KubeObject
from trio_npu_dra.kit.base.command_line import CommandLine, ShowVersion
from trio_npu_dra.kit.base.errors import (
    ConfigError,
    DriverError,
    Gone,
    Unavailable,
)
from trio_npu_dra.kit.base.terminal import ExitCode, exit_status, say, visible, write
from trio_npu_dra.revision import full_version
from trio_npu_dra.tools import kubectl
from trio_npu_dra.tools.cli.table import Line, with_styles

_LIBRARIES: Final = ("cel", "rich")
_PURPOSE: Final = (
    "kubectl npu shows the NPUs of a cluster, their holders, and why a pod waits for one"
)
_PAUSE: Final = 0.3
"""Seconds after a change, in which further ones come."""
_LONGEST: Final = 60.0
"""Seconds after which all is read again without a change."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code (`ExitCode`).

    Raises:
        SystemExit: The command line is wrong, or asks for help or the version.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    asked = parser().read(words)
    code = exit_status("kubectl npu", lambda: _answered(asked))
    if code and not words:
        say(f"{_PURPOSE} (see kubectl npu --help)", stream=sys.stderr)
    return code


def _answered(asked: argparse.Namespace) -> int:
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise DriverError(f"the Python package {missing[0]} is missing: install trio-npu-dra[cli]")
    trio.run(_run, asked)
    return ExitCode.FINE


def parser() -> CommandLine:
    """The command line."""
    made = CommandLine(
        "kubectl npu",
        f"{_PURPOSE}. It only reads.",
        commands={
            "(none)": "the NPUs by node: free, used, unhealthy, held by whom",
            "node NAME": "one node: its NPUs and how they are connected",
            "explain POD|CLAIM": "why it waits, or what it has; also pod/NAME, claim/NAME",
            "explain job/NAME": "whether it fits into one super pod; also jobset/, lws/",
            "why-unhealthy DEVICE": "what is wrong with it, and whom it touches; NODE/DEVICE",
        },
    )
    made.add_argument("--version", action=ShowVersion, tell=full_version)
    made.add_argument(
        "command",
        nargs="?",
        choices=("list", "node", "explain", "why-unhealthy"),
        default="list",
        metavar="COMMAND",
    )
    made.add_argument("name", nargs="?", metavar="NAME", help="what the command is about")
    namespaces = made.add_mutually_exclusive_group()
    namespaces.add_argument(
        "-n", "--namespace", default="", help="of the pod or claim (default: that of the context)"
    )
    namespaces.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="explain: look for the pod or claim in all; the other commands always show all",
    )
    made.add_argument("-w", "--watch", action="store_true", help="print again when it changes")
    made.add_argument(
        "-o",
        "--output",
        choices=("table", "wide", "json", "yaml"),
        default="table",
        help="form of the output (default: table)",
    )
    made.add_argument(
        "--driver", default=DRIVER, help=f"whose devices; '' for all drivers (default: {DRIVER})"
    )
    kubectl.add_arguments(made)
    return made


async def _run(asked: argparse.Namespace) -> None:
    if asked.command != "list" and not asked.name:
        example = f"kubectl npu {asked.command} NAME"
        raise ConfigError(f"`{asked.command}` needs a name: `{example}`")
    if asked.command == "list" and asked.name:
        raise ConfigError(f"`list` takes no name: `kubectl npu node {asked.name}` shows one node")
    async with kubectl.open_cluster(asked) as client:
        await _print_answers(client, asked)


async def _print_answers(client: KubeClient, asked: argparse.Namespace) -> None:
    """Print the answer, and with `-w` a new one whenever it has become another."""
    # The command line is parsed, and a missing package reported, before these are imported.
    from trio_npu_dra.tools.cli.npu_answers import answer  # noqa: PLC0415
    from trio_npu_dra.tools.cluster.gather import read_devices  # noqa: PLC0415

    last: dict[str, Any] | None = None
    between = {"json": (), "yaml": ("---",)}.get(asked.output, ("",))
    while True:
        versions: dict[type[KubeObject], str] = {}
        if asked.watch:
            _, versions = await read_devices(client)
        lines, wire = await answer(client, asked)
        if wire != last:
            say(*(between if last is not None else ()))
            _print(lines, wire, asked.output)
            last = wire
        if not asked.watch:
            return
        await _changed(client, versions)


async def _changed(client: KubeClient, versions: Mapping[type[KubeObject], str]) -> None:
    """Wait until a slice or a claim changes, and a moment longer."""
    with trio.move_on_after(_LONGEST):
        async with trio.open_nursery() as nursery:

            async def wait_for(kind: type[KubeObject], version: str) -> None:
                try:
                    async with client.watch(kind, resource_version=version) as events:
                        async for event in events:
                            if event.object is not None:
                                break
                except (Gone, Unavailable):
                    await trio.sleep(1)  # then all is read again, which says what is wrong
                nursery.cancel_scope.cancel()

            for kind, version in versions.items():
                nursery.start_soon(wait_for, kind, version)
    await trio.sleep(_PAUSE)


def _print(lines: Iterable[Line], wire: Mapping[str, Any], form: str) -> None:
    if form == "json":
        say(*json.dumps(wire, indent=2).splitlines())
        return
    if form == "yaml":
        say(*yaml.safe_dump(wire, sort_keys=False).splitlines())
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for line in lines:
            text = Text.assemble(*((visible(part), style) for part, style in with_styles(line)))
            text.rstrip()
            console.print(text)
    write(captured.get())


if __name__ == "__main__":
    sys.exit(main())
