"""Compiles the simulated driver: `libdcmi.so` with the vendor's ABI, and the vendor's tools."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from trio_npu_dra.kit.base.errors import CannotCompile

SOURCES = Path(__file__).parent
LIBRARY = "libdcmi.so"
LIBRARY_OF_950 = "libdcmi-950.so"
"""The library of an Ascend driver that knows Ascend 950: it has `dcmiv2_*` too."""
NPU_SMI = "npu-smi"
NPU_SMI_OF_950 = "npu-smi-950"

_LIBRARY_SOURCES = (
    "board",
    "calls",
    "cards",
    "device_info",
    "events",
    "health",
    "identity",
    "metrics",
    "network",
    "numbers",
    "occupancy",
    "topology",
    "vnpu",
    "vnpu_nodes",
    "vnpu_templates",
)
_PARTS = {
    LIBRARY: _LIBRARY_SOURCES,
    LIBRARY_OF_950: (*_LIBRARY_SOURCES, "dcmiv2"),
    NPU_SMI: ("npu-smi", "npu-smi-vnpu", "smi"),
    NPU_SMI_OF_950: ("npu-smi-950", "smi"),
}
BINARIES = tuple(_PARTS)
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-pthread")
_FLAGS_OF_PARTS = ("-c", "-fPIC", "-fvisibility=hidden")
# A process may load several boards, each RTLD_GLOBAL: a library must find its own functions, not
# those of the board that was loaded first.
_SHARED = ("-shared", "-Wl,-Bsymbolic")


def compile_simulator(target: Path) -> Path:
    """Compile libraries and tools into the folder *target*, which is made if it is missing.

    Blocks for about a second.

    Returns:
        *target*, which `create_board` takes as `prebuilt`.

    Raises:
        CannotCompile: There is no C compiler, or it fails; the message has its output.
    """
    compiler = _compiler()
    target.mkdir(parents=True, exist_ok=True)
    sources = sorted({name for parts in _PARTS.values() for name in parts})
    with tempfile.TemporaryDirectory(prefix="npu-simulator-") as folder:
        files = (str(SOURCES / f"{name}.c") for name in sources)
        _compile([compiler, *_FLAGS, *_FLAGS_OF_PARTS, *files], folder)
        for output, parts in _PARTS.items():
            objects = (f"{name}.o" for name in parts)
            kind = _SHARED if output.endswith(".so") else ()
            whole = ("-pthread", *kind, "-o", str(target.absolute() / output), *objects, "-ldl")
            _compile([compiler, *whole], folder)
    return target


def _compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        raise CannotCompile(
            "the simulator needs a C compiler and finds no cc in PATH: "
            "install gcc (Debian, Ubuntu: apt-get install gcc libc6-dev)"
        )
    return found


def _compile(command: list[str], folder: str) -> None:
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise CannotCompile(f"the simulator does not compile: {' '.join(command)}: {run.stderr}")
