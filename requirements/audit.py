#!/usr/bin/env python3
"""Lists known vulnerabilities of the locked packages: `just audit`.

It asks PyPI's vulnerability service through pip-audit. If the package index is a mirror without
that service, pip-audit reports every package that it could not look up as harmless. This script
reports that as no answer: status 0 means no known vulnerability, 1 a vulnerability, and
`NOT_CHECKED` no answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parent / "dev.txt"
"""The larger lock file; it has all pins of the smaller one."""
NOT_CHECKED = 75
"""EX_TEMPFAIL: nothing was found, because the package index has no vulnerability service."""


def verdict(packages: Sequence[dict[str, Any]]) -> tuple[int, list[str]]:
    """Judge pip-audit's report about each package.

    Returns:
        The exit status, and lines for the reader.
    """
    found = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in packages
        for vulnerability in package.get("vulns", [])
    ]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    count = len(packages) - len(skipped)
    if found:
        return 1, [*found, f"{len(found)} known vulnerabilities in {count} packages looked up"]
    if skipped or not packages:
        unknown = f"{len(skipped)} of {len(packages)} packages"
        reason = "the package index in use has no vulnerability service for them"
        return NOT_CHECKED, [f"NOT CHECKED for known vulnerabilities: {unknown}; {reason}"]
    return 0, [f"no known vulnerability in {count} packages"]


def main() -> int:
    """Audit the lock file and print the verdict; returns the exit status."""
    command = (sys.executable, "-m", "pip_audit", "--progress-spinner=off", "--format=json")
    hashed = ("--require-hashes", "--disable-pip", "--requirement", str(LOCK))
    done = subprocess.run([*command, *hashed], capture_output=True, text=True, check=False)
    if not done.stdout:
        *_, reason = done.stderr.splitlines() or ["pip-audit said nothing"]
        print(f"NOT CHECKED for known vulnerabilities: {reason}")
        return NOT_CHECKED
    status, lines = verdict(json.loads(done.stdout)["dependencies"])
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
