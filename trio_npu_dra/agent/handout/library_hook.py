"""The program that makes a container's loader find the Ascend driver's libraries.

The container runtime runs it on the host as a createContainer hook (`native/libraries_hook`). It
lies in the folder of the CDI files: a user who can write there can have runtimes run anything
anyway, and every user can enter the folder. (A container with user ids of its own runs its hooks
with these ids, which cannot enter the kubelet's folders.) CDI reads only .json and .yaml files.

A program stays while a CDI file or a record names it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)

PROGRAM: Final = Path(sys.prefix, "libexec/npu-dra-libraries")
"""The program in the image."""

_MODE: Final = 0o711
"""Unreadable for others: so the kernel hides its process from root of a pod's own users."""
_TIMEOUT: Final = 60  # seconds until a runtime kills it; by itself it ends after 20


class LibraryHook:
    """One version of the program, in the folder of the CDI files.

    Args:
        root: The folder; made when missing.
        driver_name: The start of our files' names.
        program: The program of this installation, which does not change while the daemon runs.

    Raises:
        StorageError: The program cannot be read.
    """

    def __init__(self, root: Path, driver_name: str, program: Path) -> None:
        self._program = program
        # With the digest in the name, the CDI files of two versions never name one program.
        digest = hashlib.sha256(self._content()).hexdigest()
        self.path = root / f"{prefix(driver_name)}{digest[:16]}"

    def edits(self, folders: Sequence[str]) -> dict[str, Any]:
        """The hook of a CDI spec with which the loader looks into *folders* of the container."""
        return {
            "hookName": "createContainer",
            "path": str(self.path),
            "args": [PROGRAM.name, *folders],
            "env": ["PATH=/usr/sbin:/sbin"],  # with none, some runtimes pass on the image's
            "timeout": _TIMEOUT,
        }

    def install(self) -> None:
        """Write the program unless it is there and right.

        Raises:
            StorageError: It cannot be written, or the folder allows no execution.
        """
        root = self.path.parent
        with storage.translated(f"make {root}"):
            if not root.is_dir():
                root.mkdir(parents=True, exist_ok=True)
            flags = os.statvfs(root).f_flag
        if flags & os.ST_NOEXEC:
            raise StorageError(
                f"{root} is mounted noexec, so no runtime can execute our hook in it: mount it "
                "without noexec, or set --container-libraries=env"
            )
        content = self._content()
        if not storage.holds(self.path, content, mode=_MODE):
            storage.write_atomic(self.path, content, mode=_MODE)

    def _content(self) -> bytes:
        with storage.translated(f"read {self._program}"):
            return self._program.read_bytes()


def installed_hook(root: Path, driver_name: str, program: Path = PROGRAM) -> LibraryHook | None:
    """Install this installation's program, which only the image has.

    Returns:
        None if that is impossible; the log says why, and that LD_LIBRARY_PATH takes its place.
    """
    try:
        hook = LibraryHook(root, driver_name, program)
        hook.install()
    except StorageError as error:
        log.warning(
            "containers get LD_LIBRARY_PATH instead of an ld.so.cache with the driver's folders",
            extra={"error": str(error)},
        )
        return None
    return hook


def other_programs(root: Path, driver_name: str, ours: LibraryHook | None) -> list[Path]:
    """The programs of other versions in the folder.

    Raises:
        StorageError: The folder cannot be read.
    """
    start = prefix(driver_name)
    found = [path for path in storage.paths_in(root) if path.name.startswith(start)]
    return [path for path in found if ours is None or path != ours.path]


def prefix(driver_name: str) -> str:
    """The start of a program's name."""
    return f"{driver_name}-libraries-"
