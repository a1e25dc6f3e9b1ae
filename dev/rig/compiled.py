"""The simulator, compiled once for all test runs."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from dev.cluster.binaries import cache, locked
from dev.cluster.processes import run
from trio_npu_dra.lab.simulator import compile_simulator
from trio_npu_dra.lab.simulator.build import SOURCES


def compiled_simulator() -> Path:
    """Compile it if it is not in the cache.

    Returns:
        The folder with library and tool.

    Raises:
        CannotCompile: There is no C compiler, or it fails.
    """
    inputs = [path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]"))]
    inputs.append((SOURCES / "build.py").read_bytes())
    inputs.append(run("cc", "--version").encode())
    key = hashlib.sha256(b"\0".join(inputs)).hexdigest()[:12]
    place = cache() / f"simulator-{key}"
    with locked("simulator"):
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=cache(), prefix=".simulator-") as temp:
                compile_simulator(Path(temp, "out")).rename(place)
    return place
