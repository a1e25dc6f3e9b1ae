#!/usr/bin/env python3
"""Build the image twice, nothing reused, and compare: `just reproduce`.

An image's id is the digest of its configuration, which has the digests of its layers, so equal ids
are equal bytes. The time of what is made is fixed; buildah and podman can do that.

usage: python requirements/reproduce.py BUILDER [ARGUMENT...]
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TIMES = 2


def build(builder: str, arguments: list[str]) -> str:
    """Build it anew; returns its id."""
    with tempfile.TemporaryDirectory() as temp:
        file = Path(temp, "id")
        options = ("--no-cache", "--timestamp=0", f"--iidfile={file}")
        command = [*shlex.split(builder), "build", *options, *arguments, str(ROOT)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return file.read_text(encoding="utf-8").strip()


def main(builder: str, *arguments: str) -> None:
    """Build and compare.

    Raises:
        SystemExit: The images differ.
    """
    built = [build(builder, [*arguments]) for _ in range(TIMES)]
    if len(set(built)) > 1:
        sys.exit(f"the same tree made different images: {', '.join(built)}")
    print(f"built {TIMES} times: {built[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
