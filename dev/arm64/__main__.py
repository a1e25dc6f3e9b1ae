"""The driver on arm64, emulated: `python -m dev.arm64`. docs/arm64.md says what it shows.

All parts run at once; what a part prints is shown when it has ended. It needs Debian and root.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dev.arm64.container import IMAGE, container
from dev.cluster import packages
from dev.cluster.binaries import cache, locked, workspace
from dev.cluster.images import PYTHON_ARM64
from dev.cluster.processes import run

ROOT = Path(__file__).parents[2]
TESTED = (
    "tests/simulator",
    *("tests/ascend/dcmi", "tests/ascend/test_discovery.py", "tests/ascend/test_host.py"),
    *("tests/claims/test_cdi.py", "tests/claims/test_library_hook.py"),
    *("tests/test_storage.py", "tests/test_file_lock.py"),
)
"""What meets the machine: structs, calls of the C library, devices, files and locks."""
LEFT_OUT = ("tests/simulator/test_occupancy.py",)
"""Tests whose programs make user namespaces, which an emulated program cannot."""
PYTEST = (
    *("python3", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"),
    *("--hypothesis-profile", "few", *(f"--ignore={path}" for path in LEFT_OUT)),
)
DEMO = ("python3", "-m", "trio_npu_dra.agent.cli.main", "demo")
LOCK = ROOT / "requirements/dev.txt"
PYTHON = "3.13"
"""That of the base image."""
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
ENVIRONMENT: Mapping[str, str] = {
    "PYTHONPATH": "/tree:/site",
    "PYTHONDONTWRITEBYTECODE": "",  # this machine's may forbid what saves most of the time
    "XDG_CACHE_HOME": "/cache",
    "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
}


def site() -> Path:
    """Install what the tests import, for arm64, if the cache lacks it; runs no program for arm64.

    Returns:
        The folder for `PYTHONPATH`.

    Raises:
        ClusterError: A wheel is missing, or is not the one that is locked.
    """
    key = hashlib.sha256(LOCK.read_bytes() + PYTHON.encode()).hexdigest()[:12]
    place = cache() / f"site-arm64-{key}"
    with locked("site-arm64"):
        if not place.exists():
            with workspace("site") as temp:
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


def emulated(*argv: str) -> int:
    """Run a program of this tree in Debian for arm64; returns its status."""
    kept = cache() / "arm64"
    kept.mkdir(exist_ok=True)
    script = ("sh", "-euc", 'uname -m; cd /tree; exec "$@"', "sh", *argv)
    with (
        container(PYTHON_ARM64.ready(), tree=ROOT, site=site(), cache=kept) as debian,
        debian.invocation(*script, environment=ENVIRONMENT) as words,
    ):
        return shown(argv, words)


def image() -> int:
    """Build the image for arm64 and try it, with stand-ins on this machine."""
    builder = os.environ | {
        "NPU_DRA_BUILDER": f"{sys.executable} -m dev.cluster.builder",
        "NPU_DRA_IMAGE": IMAGE,
    }
    build = ("just", "image", "--platform", "linux/arm64", "--target", "simulator")
    tests = (sys.executable, "-m", "pytest", "-q", str(ROOT / "tests/arm64"))
    return shown(build, build, builder) or shown(tests, tests)


def shown(
    title: tuple[str, ...],
    words: tuple[str, ...] | list[str | Path],
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a program to its end and show what it printed; returns its status."""
    began = time.monotonic()
    done = subprocess.run(
        words,
        env=environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    took = time.monotonic() - began
    print(f"\n=== {took:.0f} s: {' '.join(title)}\n{done.stdout}", end="", flush=True)
    return done.returncode


def main(arguments: list[str]) -> int:
    """Run all parts; arguments go to pytest in place of its folders. Returns 1 if a part failed."""
    if platform.machine() == "aarch64":
        sys.exit("this machine is for arm64 itself: `just check` and `just e2e` need no emulation")
    packages.install("qemu-user-static")
    PYTHON_ARM64.ready()
    parts: list[Callable[[], int]] = [
        image,
        lambda: emulated(*DEMO),
        lambda: emulated(*PYTEST, *(arguments or TESTED)),
    ]
    with ThreadPoolExecutor(len(parts)) as beside:
        running = [beside.submit(part) for part in parts]
        statuses = [part.result() for part in running]
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
