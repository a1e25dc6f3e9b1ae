"""`npu-dra validate`: are claims and classes for this driver right? Asks no cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trio_npu_dra.agent.config.model import DRIVER
from trio_npu_dra.kit.base.errors import UnreadableManifest
from trio_npu_dra.kit.base.terminal import ExitCode, say
from trio_npu_dra.tools.manifests import Report, inspect
from trio_npu_dra.tools.names import unknown_class

_STDIN = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="YAML or JSON with ResourceClaims, ResourceClaimTemplates and DeviceClasses; other "
        "objects are passed over; - is standard input",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what is wrong, as `file:line: what`, and at the end how many configs there were.

    A file that cannot be read is a problem; a DeviceClass that may be the operator's is none.
    """
    reports: list[tuple[str, Report]] = []
    problems, status = 0, ExitCode.FINE
    for file in arguments.files:
        name = "<stdin>" if file == _STDIN else file
        try:
            reports.append((name, _inspect(file)))
        except UnreadableManifest as error:
            say(f"{name}:{error}", stream=sys.stderr)
            problems += 1
            status = ExitCode.WRONG_USAGE
    classes = {name for _, report in reports for name in report.classes}
    for name, report in reports:
        for remark in report.passed_over:
            say(f"{name}:{remark.line}: passed over: {remark.text}", stream=sys.stderr)
        for remark in report.asked:
            if doubt := unknown_class(remark.text, classes):
                say(f"{name}:{remark.line}: warning: {doubt}", stream=sys.stderr)
        for remark in report.problems:
            say(f"{name}:{remark.line}: {remark.text}")
        problems += len(report.problems)
    configs = sum(report.configs for _, report in reports)
    say(f"configs for {DRIVER}: {configs}, problems: {problems}")
    return status or (ExitCode.FAILED if problems else ExitCode.FINE)


def _inspect(file: str) -> Report:
    """Read a file and look at it.

    Raises:
        UnreadableManifest: It cannot be read.
    """
    if file == _STDIN:
        return inspect(sys.stdin.buffer.read())
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise UnreadableManifest(f" {error.strerror}") from None
    return inspect(content)
