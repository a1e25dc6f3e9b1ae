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

from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

PROTOS = Path(__file__).resolve().parent
ROOM = PROTOS.parent / "trio_npu_dra/kit/grpc"
MESSAGES = "_generated"
"""The folder with the messages, each package of the .proto files in a package of its own."""

PACKAGE = "trio_npu_dra.kit.grpc._generated"
VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")
WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")

METHODS = "methods.py"
"""The module with the methods."""

OLDER = {
    "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
    "v1.DRAResourceHealth": "v1alpha1.DRAResourceHealth",
}
"""Services that older kubelets know by another name. Their messages are on the wire those of v1, as
far as they know: v1beta1 of DRAPlugin has no share id, v1alpha1 of DRAResourceHealth is equal."""


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
    (target / METHODS).write_text(methods_module(files), encoding="utf-8")
    config = f"--config={PROTOS.parent / 'pyproject.toml'}"
    for command in (["check", "--fix", "--select=I"], ["format"]):
        ruff = [f"{scripts}/ruff", *command, "--quiet", config]
        subprocess.run([*ruff, target / METHODS], check=True)


def methods_module(files: Iterable[FileDescriptorProto]) -> str:
    """A module with a constant for each method of *files*: `NODE_PREPARE_RESOURCES_V1`."""
    imports, constants = list[str](), list[str]()
    for file in files:
        package = file.package.replace(".", "_")
        parent, _, last = f"{PACKAGE}.{file.package}".rpartition(".")
        alias = "" if last == package else f" as {package}"
        imports.append(f"from {parent} import {last}{alias}")
        for service in file.service:
            known = f"{file.package}.{service.name}"
            for name in [known, *([OLDER[known]] if known in OLDER else [])]:
                constants += [constant(method, package, name) for method in service.method]
    return "\n".join(
        [
            '"""The gRPC methods of plugins and probes; made by protos/generate.py."""\n',
            "from __future__ import annotations\n",
            "from typing import Final\n",
            *sorted(set(imports)),
            "from trio_npu_dra.kit.grpc.service import StreamMethod, UnaryMethod\n",
            *constants,
        ]
    )


def constant(method: MethodDescriptorProto, package: str, service: str) -> str:
    """The constant of a *method* whose messages are in *package*, by the name of its *service*."""
    version = service.split(".")[-2]
    suffix = f"_{version.upper()}" if VERSION.fullmatch(version) else ""
    kind = "StreamMethod" if method.server_streaming else "UnaryMethod"
    request, reply = (
        f"{package}.{one.rpartition('.')[2]}" for one in (method.input_type, method.output_type)
    )
    return (
        f"{WORD.sub('_', method.name).upper()}{suffix}: Final = {kind}(\n"
        f'    "/{service}/{method.name}",\n    {request},\n    {reply},\n)'
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
        if name == METHODS or name.startswith(f"{MESSAGES}/")
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
