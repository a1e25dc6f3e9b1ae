"""`buildah build` on the storage and base images of the tests.

`NPU_DRA_BUILDER="python -m dev.cluster.builder" just image` needs no registry. With
`--platform linux/arm64` it takes the base image for arm64, whose programs are emulated.
"""

from __future__ import annotations

import sys

from dev.cluster.images import PYTHON, PYTHON_ARM64, buildah, building


def main(command: str, *arguments: str) -> None:
    """Run the command that `just` gives to a builder."""
    is_arm64 = any(argument.endswith("linux/arm64") for argument in arguments)
    base = PYTHON_ARM64 if is_arm64 else PYTHON
    print(
        buildah(
            command,
            *building(base.storage),
            *("--build-arg", f"PYTHON_IMAGE={base.ready()}"),
            *arguments,
            storage=base.storage,
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
