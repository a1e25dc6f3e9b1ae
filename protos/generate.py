#!/usr/bin/env python3
"""Compile the .proto files beside this script into messages and methods of `trio_npu_dra/kit/grpc`.

Usage: `python protos/generate.py [--check]`. Needs the `dev` extra; the compiler formats its output
with the `ruff` of the same environment. With `--check` it writes nothing: the exit status is 1,
with a diff, if the generated code in the tree differs from what the .proto files give.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

PROTOS = Path(__file__).resolve().parent
ROOM = PROTOS.parent / "trio_npu_dra/kit/grpc"
MESSAGES = "_generated"
"""The folder with the messages, each package of the .proto files in a package of its own."""

PACKAGE = "trio_npu_dra.kit.grpc._generated"
VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")
WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")

METHODS = {
    "methods.py": (
        "The gRPC methods of a DRA driver and its probes",
        ("dra_health", "dra_v", "grpc_health", "pluginregistration"),
    ),
    "device_plugin_methods.py": (
        "The gRPC methods of a device plugin, which most nodes do not have",
        ("deviceplugin", "podresources"),
    ),
}
"""The modules with methods: what they hold, and how the names of their .proto files begin."""


def compile_protos(target: Path) -> None:
    """Write all that the .proto files give into the existing folder *target*."""
    scripts = sysconfig.get_path("scripts")
    (target / MESSAGES).mkdir()
    descriptors = target / "descriptors"
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTOS}"),
            f"--plugin={scripts}/protoc-gen-python_betterproto2",
            f"--python_betterproto2_out={target / MESSAGES}",
            # The room has a server and a client of its own.
            "--python_betterproto2_opt=client_generation=none,server_generation=none",
            f"--descriptor_set_out={descriptors}",
            *(file.name for file in sorted(PROTOS.glob("*.proto"))),
        ],
        cwd=PROTOS,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
        check=True,
    )
    files = FileDescriptorSet.FromString(descriptors.read_bytes()).file
    for name, (title, prefixes) in METHODS.items():
        ours = [file for file in files if file.name.startswith(prefixes)]
        (target / name).write_text(methods_module(title, ours), encoding="utf-8")
    config = f"--config={PROTOS.parent / 'pyproject.toml'}"
    for command in (["check", "--fix", "--select=I"], ["format"]):
        ruff = [f"{scripts}/ruff", *command, "--quiet", config]
        subprocess.run([*ruff, *(target / name for name in METHODS)], check=True)


def methods_module(title: str, files: Iterable[FileDescriptorProto]) -> str:
    """A module with a constant for each method of *files*: `NODE_PREPARE_RESOURCES_V1`."""
    imports, constants, kinds = list[str](), list[str](), set[str]()
    for file in files:
        package = file.package.replace(".", "_")
        parent, _, last = f"{PACKAGE}.{file.package}".rpartition(".")
        alias = "" if last == package else f" as {package}"
        imports.append(f"from {parent} import {last}{alias}")
        version = f"_{last.upper()}" if VERSION.fullmatch(last) else ""
        for service in file.service:
            for method in service.method:
                kind = "StreamMethod" if method.server_streaming else "UnaryMethod"
                kinds.add(kind)
                request, reply = (
                    f"{package}{one.removeprefix(f'.{file.package}')}"
                    for one in (method.input_type, method.output_type)
                )
                path = f"/{file.package}.{service.name}/{method.name}"
                constants.append(
                    f"{WORD.sub('_', method.name).upper()}{version}: Final = {kind}(\n"
                    f'    "{path}",\n    {request},\n    {reply},\n)'
                )
    return "\n".join(
        [
            f'"""{title}; made by protos/generate.py."""\n',
            "from __future__ import annotations\n",
            "from typing import Final\n",
            *sorted(set(imports)),
            f"from trio_npu_dra.kit.grpc.service import {', '.join(sorted(kinds))}\n",
            *constants,
        ]
    )


def sources(folder: Path) -> dict[str, str]:
    """Read all Python files of *folder* by their relative path."""
    return {
        str(file.relative_to(folder)): file.read_text(encoding="utf-8")
        for file in sorted(folder.rglob("*.py"))
    }


def generated() -> dict[str, str]:
    """What the tree holds of it, by relative path."""
    return {
        name: text
        for name, text in sources(ROOM).items()
        if name in METHODS or name.startswith(f"{MESSAGES}/")
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
    """Make the tree hold exactly *files* of what is generated."""
    for name in generated().keys() - files.keys():
        (ROOM / name).unlink()
    for name, text in files.items():
        path = ROOM / name
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
    diff = difference(generated(), fresh)
    if check:
        sys.stdout.write(diff)
        return 1 if diff else 0
    write(fresh)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
