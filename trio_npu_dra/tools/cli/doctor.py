"""`npu-dra doctor`: what else on this node serves NPUs, what is in the way, and what to do."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import trio

from trio_npu_dra.agent.flags import add_flags
from trio_npu_dra.agent.settings import MeetingSettings, host_node_name
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.kit.base import logs
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.terminal import ExitCode, say
from trio_npu_dra.tools.cli import table
from trio_npu_dra.tools.doctor.examination import examine
from trio_npu_dra.tools.doctor.finding import Check, Level
from trio_npu_dra.tools.doctor.places import Places


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that say where the node is seen, as the daemon has them, and the form."""
    add_flags(parser, MeetingSettings)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="form of the output (default: table)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="for gates: exit with 1 unless each check was made and all is well, so also after a "
        "warning and where something could not be checked",
    )


def run(arguments: argparse.Namespace) -> int:
    """Examine the node and print what was found."""
    settings = MeetingSettings.load(vars(arguments), os.environ)
    logs.configure("warning", "text")
    checks = trio.run(_examine, settings)
    if arguments.output == "json":
        say(*json.dumps(_wire(checks), indent=2).splitlines())
    else:
        say(*_lines(checks), "", _summary(checks))
    return exit_code(checks, is_strict=arguments.strict)


def exit_code(checks: Iterable[Check], *, is_strict: bool) -> ExitCode:
    """Whether there are problems; strict: whether all is well, as far as can be known at all."""
    harmless = {Level.OK} if is_strict else {Level.OK, Level.WARNING, Level.NOT_CHECKED}
    levels = {finding.level for check in checks for finding in check.findings}
    return ExitCode.FINE if levels <= harmless else ExitCode.FAILED


async def _examine(settings: MeetingSettings) -> tuple[Check, ...]:
    places = Places(
        host=Host(
            host_root=settings.host_root, dev_root=settings.dev_root, sysfs_root=settings.sysfs_root
        ),
        driver_name=settings.driver_name,
        plugins=settings.kubelet_plugins_directory_path,
        registrations=settings.kubelet_registrar_directory_path,
        device_plugins=settings.kubelet_device_plugins_directory_path,
        cdi=settings.cdi_root,
    )
    return await examine(
        places,
        node_name=_node_name(settings),
        kubeconfig=settings.kubeconfig,
        claim_status=settings.claim_status,
    )


def _node_name(settings: MeetingSettings) -> str | None:
    try:
        return settings.node_name or host_node_name()
    except ConfigError:  # the API server is not asked then, and the output says so
        return None


def _lines(checks: Iterable[Check]) -> Iterator[str]:
    """A line for each finding, and below it what to do."""
    rows, actions = [], []
    for check in checks:
        for number, finding in enumerate(check.findings):
            rows.append((finding.level.value, "" if number else check.name, finding.text))
            actions.append(finding.action)
    for row, action in zip(table.lines(rows), actions, strict=True):
        yield row
        if action:
            yield f"    -> {action}"


def _summary(checks: Iterable[Check]) -> str:
    counts = {
        "problems": Level.PROBLEM,
        "warnings": Level.WARNING,
        "not checked": Level.NOT_CHECKED,
    }
    return ", ".join(f"{word}: {_count(checks, level)}" for word, level in counts.items())


def _count(checks: Iterable[Check], level: Level) -> int:
    return sum(finding.level is level for check in checks for finding in check.findings)


def _wire(checks: Iterable[Check]) -> dict[str, Any]:
    return {
        "problems": _count(checks, Level.PROBLEM),
        "warnings": _count(checks, Level.WARNING),
        "notChecked": _count(checks, Level.NOT_CHECKED),
        "findings": [
            {
                "check": check.name,
                "level": finding.level.value,
                "text": finding.text,
                "action": finding.action,
            }
            for check in checks
            for finding in check.findings
        ],
    }
