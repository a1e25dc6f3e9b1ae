"""A container that is about to be created, for tests of the hook.

It is laid out as a runtime has it when it calls such a hook: in namespaces of its own, the driver's
folder mounted in its root, nothing of it running. A user namespace makes that possible without
root. What is in the cache is read by the host's own ldconfig.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hook_program import compiled_hook

FOLDER = "/opt/driver/lib64"
PATIENT = "-DMILLISECONDS=600000"
"""For a hook that waits for ldconfig also where a busy kernel keeps each mount waiting."""


def compile_library(path: Path) -> None:
    """A library whose soname is its file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soname = f"-Wl,-soname,{path.name}"
    command = ["cc", "-shared", "-nostdlib", soname, "-o", str(path), "-x", "c", os.devnull]
    subprocess.run(command, check=True)


@functools.cache
def _any_library() -> bytes:
    with tempfile.TemporaryDirectory() as temp:
        compile_library(Path(temp, "libany.so"))
        return Path(temp, "libany.so").read_bytes()


def put_library(path: Path) -> None:
    """A library that goes by `libany.so`, whatever its file's name is; compiled once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_any_library())


@dataclass(frozen=True)
class Container:
    """A container that is about to be created.

    Attributes:
        place: A folder with its root, its bundle, and the driver's folder on the host.
        program: The hook.
    """

    place: Path
    program: Path

    @property
    def root(self) -> Path:
        """The image."""
        return self.place / "bundle/rootfs"

    @property
    def cache(self) -> Path:
        """What its loader looks into."""
        return self.root / "etc/ld.so.cache"

    def run(
        self,
        *folders: str,
        before: str = "",
        config: object = None,
        state: object = None,
        open_files: Sequence[int] = (),
    ) -> str:
        """Mount the driver's folder in the root and run the hook.

        Args:
            folders: Its arguments.
            before: Shell commands that run first, in the container's namespaces.
            config: The bundle's config.json, if it is an odd one.
            state: What it reads from stdin, if that is odd.
            open_files: Descriptors that it inherits.

        Returns:
            What it says; it always succeeds.
        """
        usual = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}}
        written = json.dumps(usual if config is None else config)
        (self.place / "bundle/config.json").write_text(written)
        told = {"ociVersion": "1.0.2", "id": "c1", "bundle": str(self.place / "bundle")}
        mounts = (
            # A hook with faults must not reach the machine's own files.
            f"mount --bind {self.place} {self.place}",
            *(f"mount -o remount,bind,ro {path}" for path in ("/", "/dev")),
            f"mount --bind {self.root} {self.root}",
            f"mkdir -p {self.root}{FOLDER}",
            f"mount --bind -o ro {self.place}/driver {self.root}{FOLDER}",
        )
        hook = shlex.join(["exec", str(self.program), *(folders or (FOLDER,))])
        script = "\n".join(("set -e", *mounts, before, f"cd {self.root}", hook))
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
            input=json.dumps(told if state is None else state),
            pass_fds=open_files,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stderr

    def found(self) -> dict[str, str]:
        """Which file the loader takes for each library."""
        listed = subprocess.run(
            ["/sbin/ldconfig", "-p", "-C", str(self.cache)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        lines = (line.split() for line in listed.splitlines()[1:] if "=>" in line)
        return {words[0]: words[-1] for words in reversed([*lines])}


def prepared(place: Path) -> Container:
    """An image with /etc, /dev, /proc and one library, and a driver with one."""
    made = Container(place, compiled_hook(PATIENT))
    for name in ("etc", "dev", "proc"):
        (made.root / name).mkdir(parents=True)
    put_library(made.root / "usr/lib64/libany.so")
    compile_library(place / "driver/libdcmi.so")
    return made
