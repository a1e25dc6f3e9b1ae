#!/usr/bin/env python3
"""Print the revision of this tree: its commit, and what was changed since.

Two trees that differ have two revisions, so the image of a changed tree has another tag. Without
git, or in a copy without its history, it is `unknown`.

usage: python requirements/revision.py
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNKNOWN = "unknown"


def revision(tree: Path = ROOT) -> str:
    """The first digits of the commit; for a changed tree also those of a digest of the changes."""
    try:
        if Path(_git(tree, "rev-parse", "--show-toplevel").decode().strip()).resolve() != tree:
            return UNKNOWN  # the repository is another one, in which this tree lies
        commit = _git(tree, "rev-parse", "--short=12", "HEAD").decode().strip()
        changes = _git(tree, "diff", "--binary", "HEAD")
        names = _git(tree, "ls-files", "--others", "--exclude-standard", "-z")
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    if not changes and not names:
        return commit
    digest = hashlib.sha256(changes)
    for name in sorted(filter(None, names.decode(errors="surrogateescape").split("\0"))):
        file = tree / name
        digest.update(name.encode(errors="surrogateescape") + b"\0")
        digest.update(file.read_bytes() if file.is_file() else b"")
    return f"{commit}-changed-{digest.hexdigest()[:8]}"


def _git(tree: Path, *arguments: str) -> bytes:
    command = ("git", "-C", str(tree), *arguments)
    return subprocess.run(command, check=True, capture_output=True).stdout


if __name__ == "__main__":
    print(revision())
