#!/usr/bin/env python3
"""Compile the .proto files beside this script into `trio_npu_dra/kit/grpc/_generated`.

Usage: `python protos/generate.py [--check]`. Needs the `dev` extra; the compiler formats its output
with the `ruff` of the same environment. With `--check` it writes nothing: the exit status is 1,
with a diff, if the generated code in the tree differs from what the .proto files give.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
GENERATED = PROTOS.parent / "trio_npu_dra/kit/grpc/_generated"


def compile_protos(target: Path) -> None:
    """Write the Python package for all .proto files into the existing folder *target*."""
    scripts = sysconfig.get_path("scripts")
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTOS}"),
            f"--plugin={scripts}/protoc-gen-python_betterproto2",
            f"--python_betterproto2_out={target}",
            # rpc/ has servers and clients; the default client would import grpcio.
            "--python_betterproto2_opt=client_generation=none,server_generation=none",
            *(file.name for file in sorted(PROTOS.glob("*.proto"))),
        ],
        cwd=PROTOS,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
        check=True,
    )


def sources(folder: Path) -> dict[str, str]:
    """Read all Python files of *folder* by their relative path."""
    return {
        str(file.relative_to(folder)): file.read_text(encoding="utf-8")
        for file in sorted(folder.rglob("*.py"))
    }


def difference(old: dict[str, str], new: dict[str, str]) -> str:
    """Unified diff of two packages, empty when they are equal."""
    return "".join(
        line
        for name in sorted(old.keys() | new.keys())
        for line in difflib.unified_diff(
            old.get(name, "").splitlines(keepends=True),
            new.get(name, "").splitlines(keepends=True),
            f"tree/{name}",
            f"regenerated/{name}",
        )
    )


def write(files: dict[str, str]) -> None:
    """Make the generated package in the tree hold exactly *files*."""
    for name in sources(GENERATED).keys() - files.keys():
        (GENERATED / name).unlink()
    for name, text in files.items():
        path = GENERATED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main() -> int:
    """Regenerate, or compare; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only compare with the tree")
    check: bool = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        compile_protos(Path(folder))
        fresh = sources(Path(folder))
    diff = difference(sources(GENERATED), fresh)
    if check:
        sys.stdout.write(diff)
        return 1 if diff else 0
    write(fresh)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
