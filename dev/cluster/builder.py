"""`buildah build` on the storage and base images of the tests.

`NPU_DRA_BUILDER="python -m dev.cluster.builder" just image` needs no registry.
"""

from __future__ import annotations

import sys

from dev.cluster.images import BUILDING, PYTHON, buildah


def main(command: str, *arguments: str) -> None:
    """Run the command that `just` gives to a builder."""
    print(buildah(command, *BUILDING, f"--build-arg=PYTHON_IMAGE={PYTHON.ready()}", *arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
