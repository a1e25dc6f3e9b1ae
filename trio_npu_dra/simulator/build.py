"""Compiles the simulated driver: `libdcmi.so` with the vendor's ABI, and the vendor's tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from trio_npu_dra.errors import ConfigError

SOURCES = Path(__file__).parent
LIBRARY = "libdcmi.so"
LIBRARY_OF_950 = "libdcmi-950.so"
"""The library of an Ascend driver that knows Ascend 950: it has `dcmiv2_*` too."""
NPU_SMI = "npu-smi"
NPU_SMI_OF_950 = "npu-smi-950"
HCCN_TOOL = "hccn_tool"
BINARIES = (LIBRARY, LIBRARY_OF_950, NPU_SMI, NPU_SMI_OF_950, HCCN_TOOL)

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
    "topology",
)
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-pthread")
# A process may load several boards, each RTLD_GLOBAL: a library must find its own functions, not
# those of the board that was loaded first.
_SHARED = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic")


def compile_simulator(target: Path) -> Path:
    """Compile library and tools into the folder *target*, which is made if it is missing.

    Blocks for about two seconds.

    Returns:
        *target*, which `create_board` takes as `prebuilt`.

    Raises:
        ConfigError: There is no C compiler, or it fails; the message has its output.
    """
    compiler = _compiler()
    target.mkdir(parents=True, exist_ok=True)
    library = [compiler, *_FLAGS, *_SHARED]
    _compile([*library, *_command(target / LIBRARY, *_LIBRARY_SOURCES)])
    _compile([*library, *_command(target / LIBRARY_OF_950, *_LIBRARY_SOURCES, "dcmiv2")])
    _compile([compiler, *_FLAGS, *_command(target / NPU_SMI, "npu-smi", "smi")])
    _compile([compiler, *_FLAGS, *_command(target / NPU_SMI_OF_950, "npu-smi-950", "smi")])
    _compile([compiler, *_FLAGS, *_command(target / HCCN_TOOL, "hccn_tool", "board")])
    return target


def _command(output: Path, *sources: str) -> list[str]:
    return ["-o", str(output), *(str(SOURCES / f"{name}.c") for name in sources), "-ldl"]


def _compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        raise ConfigError(
            "the simulator needs a C compiler and finds no cc in PATH: "
            "install gcc (Debian, Ubuntu: apt-get install gcc libc6-dev)"
        )
    return found


def _compile(command: list[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise ConfigError(f"the simulator does not compile: {' '.join(command)}: {run.stderr}")
