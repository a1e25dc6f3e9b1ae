"""What the tests import, for arm64: the wheels of requirements/dev.txt."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from dev.cluster.binaries import cache, locked
from dev.cluster.processes import run

LOCK = Path(__file__).parents[2] / "requirements/dev.txt"
PYTHON = "3.13"
"""That of the base image."""
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")


def site() -> Path:
    """Install them if they are not in the cache; no program for arm64 is run.

    Returns:
        The folder for `PYTHONPATH`.

    Raises:
        ClusterError: A wheel is missing, or is not the one that is locked.
    """
    key = hashlib.sha256(LOCK.read_bytes() + PYTHON.encode()).hexdigest()[:12]
    place = cache() / f"site-arm64-{key}"
    with locked("site-arm64"):
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=cache(), prefix=".site-") as temp:
                run(
                    # It compiles with this Python, which helps if it is of the same version.
                    *(sys.executable, "-m", "pip", "install", "--quiet", "--compile"),
                    *("--no-deps", "--require-hashes", "--only-binary=:all:"),
                    *("--target", Path(temp, "site"), "--python-version", PYTHON),
                    *(f"--platform={name}_aarch64" for name in PLATFORMS),
                    *("--requirement", LOCK),
                )
                Path(temp, "site").rename(place)
    return place
