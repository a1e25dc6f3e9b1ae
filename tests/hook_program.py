"""The program `npu-dra-libraries`, compiled once for all test runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dev.cluster.binaries import cache, locked
from dev.cluster.processes import run

SOURCES = Path(__file__).parents[1] / "native/libraries_hook"


def compiled_hook(*flags: str) -> Path:
    """Compile it if it is not in the cache.

    Args:
        flags: For the compiler: `-DMILLISECONDS=200` makes one that waits no longer for ldconfig.

    Raises:
        ClusterError: There is no C compiler with a static C library, or it fails.
    """
    inputs = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    inputs += [*(flag.encode() for flag in flags), run("cc", "--version").encode()]
    key = hashlib.sha256(b"\0".join(inputs)).hexdigest()[:12]
    place = cache() / f"libraries-hook-{key}"
    with locked("libraries-hook"):
        if not place.exists():
            unfinished = place.with_suffix(".new")
            run("sh", SOURCES / "build.sh", unfinished, *flags)
            unfinished.rename(place)
    return place
