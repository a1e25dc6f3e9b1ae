"""Fuzzing by the clock: `python -m dev.fuzz MINUTES [TARGET ...]`; docs/fuzzing.md says more."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from dev.fuzz.timed import FOLDER

TARGETS: Final = tuple(sorted(path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py")))


def main(arguments: list[str] | None = None) -> int:
    """Run targets one after another and print a table.

    Returns:
        1 when there were findings.
    """
    parser = argparse.ArgumentParser(prog="just fuzz", description=__doc__)
    parser.add_argument("minutes", type=float, help="for each target")
    parser.add_argument("target", nargs="*", help=f"of {', '.join(TARGETS)}; all without it")
    options = parser.parse_args(arguments)
    if unknown := set(options.target) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    rows, findings = [], []
    for target in options.target or TARGETS:
        since = time.monotonic()
        runs, found = _run(target, options.minutes)
        minutes = (time.monotonic() - since) / 60
        rows.append(f"| {target} | {runs} | {len(found)} | {minutes:.1f} |")
        findings += [f"{target}: {finding}" for finding in found]
    print("", "| target | runs | findings | minutes |", "|---|---|---|---|", *rows, sep="\n")
    print(*findings, sep="\n")
    return 1 if findings else 0


def _run(target: str, minutes: float) -> tuple[int, list[str]]:
    """Fuzz one target.

    Returns:
        The number of runs, and the findings.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, "-m", "dev.fuzz.timed", target, str(minutes), str(result)]
        status = subprocess.run(command, check=False).returncode
        if not result.exists():
            return 0, [f"the process ended with status {status}"]
        told = json.loads(result.read_text())
    findings = told["findings"]
    if status and not findings:
        findings = [f"pytest ended with status {status}"]
    return told["runs"], findings


if __name__ == "__main__":
    sys.exit(main())
