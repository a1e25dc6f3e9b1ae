#!/usr/bin/env python3
"""Pin the Dockerfile's base image to the present digest of its tag: `just pin-base`.

It asks the registry through skopeo, or else docker buildx, for the index of the tag, which stands
for all architectures. A tag can move to another image at any time, a digest cannot.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

DOCKERFILE = Path(__file__).parent.parent / "Dockerfile"
BASE = re.compile(
    r"^ARG PYTHON_IMAGE=(?P<name>[\w./-]+:[\w.-]+)@sha256:(?P<digest>[0-9a-f]{64})$", re.MULTILINE
)
ARCHITECTURES = frozenset({"amd64", "arm64"})


def pinned(dockerfile: str) -> tuple[str, str]:
    """The base image of a Dockerfile: its name with the tag, and its digest.

    Raises:
        SystemExit: Not exactly one base is pinned.
    """
    found = [(base["name"], base["digest"]) for base in BASE.finditer(dockerfile)]
    if len(found) != 1:
        sys.exit("the Dockerfile needs one line `ARG PYTHON_IMAGE=<name>:<tag>@sha256:<64 digits>`")
    return found[0]


def look_up(name: str) -> str:
    """The present digest of a name and tag at the registry.

    Raises:
        SystemExit: The registry cannot be asked, or it is not an index with our architectures.
    """
    if shutil.which("skopeo"):
        command = ["skopeo", "inspect", "--raw", f"docker://{name}"]
    elif shutil.which("docker"):
        command = ["docker", "buildx", "imagetools", "inspect", "--raw", name]
    else:
        sys.exit("needs skopeo, or docker with buildx, to ask the registry")
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr.decode(errors='replace').strip()}")
    index = json.loads(done.stdout)
    platforms = [each.get("platform", {}) for each in index.get("manifests", [])]
    missing = ARCHITECTURES - {platform.get("architecture") for platform in platforms}
    if missing:
        sys.exit(f"{name} is no index with an image for {', '.join(sorted(missing))}")
    return hashlib.sha256(done.stdout).hexdigest()


def main(dockerfile: Path) -> None:
    """Write the present digest into the Dockerfile, and say whether it is new."""
    text = dockerfile.read_text(encoding="utf-8")
    name, before = pinned(text)
    now = look_up(name)
    dockerfile.write_text(text.replace(before, now), encoding="utf-8")
    print(f"{name}@sha256:{now}: {'as before' if now == before else 'new'}")


if __name__ == "__main__":
    main(DOCKERFILE)
