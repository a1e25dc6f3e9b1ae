"""The lock files pin what pyproject.toml asks for, with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def pins(name: str) -> dict[str, str]:
    """The versions of a lock file by canonical package name."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    found = re.findall(
        r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+) \\\n    --hash=sha256:", text, re.MULTILINE
    )
    lines = re.findall(r"^[^\s#].*", text, re.MULTILINE)
    assert len(found) == len(lines), "every line of a lock is a pin with hashes"
    return {str(canonicalize_name(package)): version for package, version in found}


def project() -> Any:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def wrong(requirements: list[str], locked: dict[str, str]) -> list[str]:
    """The requirements that a lock file does not meet."""
    return [
        text
        for text in requirements
        for wanted in [Requirement(text)]
        if not wanted.specifier.contains(locked.get(str(canonicalize_name(wanted.name)), "0"))
    ]


def extras() -> dict[str, list[str]]:
    """What the package asks for beside its dependencies, by the names of its extras."""
    found: dict[str, list[str]] = project()["project"]["optional-dependencies"]
    return found


def test_runtime_lock_fulfils_the_dependencies() -> None:
    """The image gets what the package asks for on a node."""
    needed = project()["project"]["dependencies"] + extras()["node"]

    assert wrong(needed, pins("runtime.txt")) == []


def test_dev_lock_fulfils_extras_and_build_system() -> None:
    """`just setup` installs all tools, and what building without isolation needs."""
    needed = [text for extra in extras().values() for text in extra]
    needed += project()["build-system"]["requires"]

    assert wrong(needed, pins("dev.txt")) == []


def test_tests_run_on_what_ships() -> None:
    """The dev lock file has all versions of the runtime lock file."""
    assert pins("runtime.txt").items() <= pins("dev.txt").items()
