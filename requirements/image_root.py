#!/usr/bin/env python3
"""Lay out the image's root: the least with which Python, the driver and libdcmi.so work.

It copies file by file out of the build image, and follows what each file is linked to.
docs/image.md says what it takes and why. It needs Debian with Python, and no further packages.

usage: image_root.py driver ROOT ENVIRONMENT
       image_root.py commands ROOT --beside LOWER NAME...
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

COMMANDS = ("sh", "mount", "grep", "find", "awk", "cut")
"""Programs that libdcmi.so runs to find out where it is and which cards there are."""
LIBRARIES = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"),
    *("libresolv.so.2", "libgcc_s.so.1", "libstdc++.so.6"),
)
"""Libraries that the Ascend driver's may be linked to, besides the driver's own."""
LEFT_OUT = frozenset(
    {
        *("__pycache__", "site-packages", "dist-packages", "ensurepip", "lib2to3"),
        *("test", "idlelib", "turtledemo", "turtle.py", "pydoc_data", "tkinter", "_tkinter"),
        *("curses", "_curses", "_curses_panel", "readline"),
        *("sqlite3", "_sqlite3", "dbm", "_dbm", "_gdbm"),
    }
)
"""Parts of the standard library that nothing here imports: tests, demos, terminals, databases."""
LEFT_OUT_PREFIXES = ("_test", "_ctypes_test", "_xx", "xx", "config-")
FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/sbin", "var/log")
WRITTEN = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "/etc/group": "root:x:0:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
LICENSES = Path("/usr/share/common-licenses")
DOCUMENTS = Path("/usr/share/doc")
PACKAGES = Path("/var/lib/dpkg/status.d")
"""Where scanners look for the packages of an image without a package manager."""
PROOF = """
import ctypes, importlib, shutil, sys
libraries, commands, modules = (argument.split() for argument in sys.argv[1:])
for name in libraries:
    ctypes.CDLL(name)
for name in modules:
    importlib.import_module(name)
sys.exit(", ".join(name for name in commands if not shutil.which(name)) or 0)
"""


class Root:
    """The tree that becomes the image.

    Args:
        folder: The root of the tree.
        lower: The tree of the layer below; its files are not copied again.
    """

    def __init__(self, folder: Path, lower: Path | None = None) -> None:
        self.folder = folder
        self.taken: set[Path] = set()
        self._lower = lower

    def place(self, path: Path) -> Path:
        """The place in the tree of a path of the image."""
        return self.folder / path.relative_to("/")

    def take(self, path: Path) -> None:
        """Copy a file, or a link and what it leads to; no file is set-user-ID in the image."""
        path = path.parent.resolve() / path.name
        if path in self.taken or self._is_below(path):
            return
        self.taken.add(path)
        target = self.place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            target.symlink_to(path.readlink())
            self.take(path.parent / path.readlink())
        else:
            shutil.copyfile(path, target)
            target.chmod(path.stat().st_mode & 0o755)

    def link(self, path: Path) -> None:
        """Copy a folder that is a link, as a link; do nothing for any other."""
        if path.is_symlink() and not self._is_below(path):
            target = self.place(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_symlink():
                target.symlink_to(path.readlink())

    def write(self, path: Path, text: str) -> None:
        """Write a file of our own."""
        if not self._is_below(path):
            target = self.place(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")

    def _is_below(self, path: Path) -> bool:
        if self._lower is None:
            return False
        lower = self._lower / path.relative_to("/")
        return lower.is_symlink() or lower.exists()


def lay_out_driver(root: Root, environment: Path) -> None:
    """Lay out the driver's image except for its virtual environment and all bytecode.

    Raises:
        SystemExit: Something is missing, or the tree does not work by itself.
    """
    for name in ("bin", "sbin", "lib", "lib64"):
        root.link(Path("/", name))
    for name in FOLDERS:
        (root.folder / name).mkdir(parents=True, exist_ok=True)
    (root.folder / "tmp").chmod(0o1777)
    for file, text in WRITTEN.items():
        root.write(Path(file), text)
    root.take(Path("/etc/os-release"))

    library = Path(sysconfig.get_path("stdlib"))
    for path in standard_library(library):
        root.take(path)
    root.take(Path(sys.executable))
    take_commands(root, COMMANDS)
    system = {path.name: path.parent for path in linked([Path(sys.executable)])}["libc.so.6"]
    for name in LIBRARIES:
        root.take(system / name)
    take_linked(root, environment)
    document(root)
    prove(root, library)


def lay_out_commands(root: Root, names: Iterable[str]) -> None:
    """Lay out programs, and only what they need."""
    take_commands(root, names)
    take_linked(root)
    document(root)


def standard_library(folder: Path) -> Iterator[Path]:
    """The files of the standard library that go into the image."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        names = {*parts, path.name.partition(".")[0]}
        left_out = not LEFT_OUT.isdisjoint(names) or any(
            part.startswith(LEFT_OUT_PREFIXES) for part in parts
        )
        if not left_out and not path.is_dir():
            yield path


def take_commands(root: Root, names: Iterable[str]) -> None:
    """Copy programs by name."""
    for name in names:
        found = shutil.which(name)
        if found is None:
            sys.exit(f"the build image has no {name}")
        root.take(Path(found))


def take_linked(root: Root, environment: Path | None = None) -> None:
    """Copy the libraries that files of the tree and of the environment are linked to."""
    files = [path for path in root.taken if is_elf(path)]
    if environment is not None:
        files += [path for path in environment.rglob("*.so*") if is_elf(path)]
    for library in sorted(linked(files)):
        if environment is None or not library.is_relative_to(environment):
            root.take(library)


def is_elf(path: Path) -> bool:
    """Whether a file is a program or a library; links are not looked through."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def linked(files: Iterable[Path]) -> set[Path]:
    """The libraries that files are linked to, directly or not, the loader included.

    Raises:
        SystemExit: One of them cannot be found.
    """
    command = ("ldd", *map(str, files))
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    missing = re.findall(r"^\s+(\S+) => not found", said, re.MULTILINE)
    if missing:
        sys.exit(f"not in the build image: {', '.join(sorted(set(missing)))}")
    return {Path(found) for found in re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", said, re.MULTILINE)}


def document(root: Root) -> None:
    """Add the Debian packages that the files are from, and their licences.

    Raises:
        SystemExit: A file is from no package, or a package has no licence text.
    """
    files = [path for path in sorted(root.taken) if not path.is_symlink()]
    of_debian = [path for path in files if not path.is_relative_to("/usr/local")]
    found = owners(of_debian)
    strangers = [str(path) for path in of_debian if path not in found]
    if strangers:
        sys.exit(f"of no Debian package: {', '.join(strangers)}")
    for package in sorted(set(found.values())):
        name = package.partition(":")[0]
        folder = DOCUMENTS / name
        if not (folder / "copyright").is_file():
            sys.exit(f"no licence text of {package} in {folder}")
        root.link(folder)
        root.take(folder.resolve() / "copyright")
        root.write(PACKAGES / name, run("dpkg-query", "--status", package))
    for text in sorted(LICENSES.iterdir()):
        root.take(text)


def owners(files: Iterable[Path]) -> dict[Path, str]:
    """The Debian package of each file that belongs to one.

    Packages may name a file of /usr by its path from before the directories were merged.
    """
    names = [name for file in files for name in (str(file), str(file).removeprefix("/usr"))]
    command = ("dpkg-query", "--search", *names)
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: dict[Path, str] = {}
    for line in said.splitlines():
        packages, _, path = line.rpartition(": ")
        if not packages.startswith("diversion by"):
            for name in (path, f"/usr{path}"):
                found[Path(name)] = packages.split(", ")[0]
    return found


def prove(root: Root, library: Path) -> None:
    """Check that the tree has all that it needs, using nothing but the tree.

    Raises:
        SystemExit: A library does not load, a module cannot be imported, a command is not found.
    """
    extensions = root.place(library).glob("lib-dynload/*.so")
    modules = " ".join(sorted(path.name.partition(".")[0] for path in extensions))
    arguments = (" ".join(LIBRARIES), " ".join(COMMANDS), modules)
    run("chroot", str(root.folder), sys.executable, "-B", "-c", PROOF, *arguments)


def run(*command: str) -> str:
    """Run a program; returns its stdout, exits with its error output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:3])}: {done.stderr.strip()}")
    return done.stdout


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    kinds = parser.add_subparsers(dest="kind", required=True)
    driver = kinds.add_parser("driver")
    driver.add_argument("root", type=Path)
    driver.add_argument("environment", type=Path)
    commands = kinds.add_parser("commands")
    commands.add_argument("root", type=Path)
    commands.add_argument("--beside", type=Path, required=True)
    commands.add_argument("names", nargs="+")
    wanted = parser.parse_args()
    os.umask(0o022)
    os.environ["LC_ALL"] = "C"  # this script reads the programs' output
    if wanted.kind == "driver":
        lay_out_driver(Root(wanted.root), wanted.environment)
    else:
        lay_out_commands(Root(wanted.root, lower=wanted.beside), wanted.names)


if __name__ == "__main__":
    main()
