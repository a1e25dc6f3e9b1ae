"""Find and load libdcmi.so, wherever the Ascend driver's installer or the manifest put it."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeAlias

from trio_npu_dra.ascend import host_path
from trio_npu_dra.ascend.dcmi._codes import NOT_READY, NOT_SUPPORT, check
from trio_npu_dra.ascend.dcmi.errors import LibraryMissing, NotReady, NotSupported
from trio_npu_dra.ascend.dcmi.types import DcmiCall, OnCall, ignore_call

log = logging.getLogger(__name__)

NAME = "libdcmi.so"
_DRIVER = "usr/local/Ascend/driver/lib64"
_FOLDERS = ("usr/local/dcmi", _DRIVER, f"{_DRIVER}/driver", f"{_DRIVER}/common", "usr/lib64")
# The libraries that libdcmi.so links to; each needs only those before it.
_DEPENDENCIES = (
    "libc_sec.so",
    "libmmpa.so",
    "libascend_hal.so",
    "libdrvdsmi_host.so",
    "libdsmi_network.so",
)

Files: TypeAlias = dict[str, tuple[int, int, int, int]]
"""Libraries by path, each with its device, inode, size, and time of change in ns."""

_followers = threading.local()


def follow(follower: Callable[[str], object]) -> None:
    """Have *follower* called with the C function of each call that this thread begins."""
    _followers.follower = follower


class Library:
    """The library, once it is loaded; calls check the return code.

    Args:
        host_root: Below it are the Ascend driver's folders.
        environ: Its `LD_LIBRARY_PATH` names folders that come first.
        on_call: Called after each call.

    Attributes:
        path: The file in use.
    """

    def __init__(
        self, host_root: Path, environ: Mapping[str, str], on_call: OnCall = ignore_call
    ) -> None:
        self.path = NAME
        self._root = host_root
        self._folders = list(_folders(host_root, environ))
        self._on_call = on_call
        self._cdll: ctypes.CDLL | None = None
        self._loaded: Files = {}
        self._functions: dict[str, Any] = {}

    def load(self) -> Self:
        """Load libdcmi.so from the folders, else from the system's, unless it is loaded.

        Its dependencies are loaded first, by path, so that it works in a process that was started
        without `LD_LIBRARY_PATH`.

        Raises:
            LibraryMissing: It is nowhere, or does not load; the message says where it was looked
                for.
        """
        if self._cdll is not None:
            return self
        files = self._files()
        paths = [path for path in files if path.endswith(f"/{NAME}")]
        if paths:
            _load_dependencies(files)
        failures = []
        for path in (*paths, NAME):
            try:
                self._cdll = _open(path)
            except OSError as error:
                failures.append(str(error))
            else:
                self.path, self._loaded = path, files
                return self
        raise LibraryMissing(
            f"{NAME} cannot be loaded: looked in {', '.join(map(str, self._folders))} "
            f"and the system's folders ({'; '.join(failures)}); "
            "install the Ascend driver, or set --host-root or LD_LIBRARY_PATH to where it is seen"
        )

    def replacement(self) -> Files | None:
        """What a new process would load in place of what is in use; None if that is the same.

        None also without a libdcmi.so: an Ascend driver may be about to be installed.
        """
        files = self._files() if self._cdll is not None else {}
        is_other = files != self._loaded and any(path.endswith(f"/{NAME}") for path in files)
        return files if is_other else None

    def _files(self) -> Files:
        """The library and its dependencies, wherever they are; of each the one to load first."""
        files = {}
        for name in (NAME, *_DEPENDENCIES):
            for path in (_find(self._root, folder, name) for folder in self._folders):
                if path is not None:
                    with suppress(FileNotFoundError):  # gone by now
                        one = path.stat()
                        mark = one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns
                        files[str(path)] = mark
        return files

    def call(self, function: str, argtypes: Sequence[Any], *arguments: Any) -> None:
        """Call *function* with *arguments*, which are of *argtypes*.

        Raises:
            NotReady: It is not loaded yet.
            NotSupported: The library is of a version without this function.
            DcmiError: The function returned a code other than 0.
        """
        if self._cdll is None:
            raise NotReady(NOT_READY, function, "the library is not loaded yet")
        resolved = self._resolve(self._cdll, function, argtypes)
        if follower := getattr(_followers, "follower", None):
            follower(function)
        since = time.perf_counter()
        code = resolved(*arguments)
        seconds = time.perf_counter() - since
        self._on_call(DcmiCall(function=function, seconds=seconds, code=code))
        check(code, function)

    def _resolve(self, cdll: ctypes.CDLL, function: str, argtypes: Sequence[Any]) -> Any:
        """The C function, looked up at its first use: libraries of other versions lack some."""
        found = self._functions.get(function)
        if found is None:
            try:
                found = cdll[function]
            except AttributeError:
                meaning = f"{self.path} has no such function; a newer Ascend driver may"
                raise NotSupported(NOT_SUPPORT, function, meaning) from None
            found.argtypes = argtypes
            found.restype = ctypes.c_int
            self._functions[function] = found
        return found


def _folders(host_root: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    named = [Path(part) for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    yield from dict.fromkeys([*named, *(host_root / folder for folder in _FOLDERS)])


def _find(host_root: Path, folder: Path, name: str) -> Path | None:
    """The file *name* of a folder; below the host's root links are followed within that."""
    path = folder / name
    if folder.is_relative_to(host_root):
        found = host_path.resolve(str(host_root), f"/{path.relative_to(host_root)}")
        if found is None:
            return None
        path = Path(found)
    return path if os.path.isfile(path) else None  # noqa: PTH113 - false where we may not look


def _load_dependencies(files: Files) -> None:
    """Load those of the Ascend driver's other libraries that exist."""
    for name in _DEPENDENCIES:
        path = next((path for path in files if path.endswith(f"/{name}")), None)
        if path is not None:
            try:
                _open(path)
            except OSError as error:
                log.debug("library of the Ascend driver not preloaded", extra={"error": str(error)})


def _open(name: str) -> ctypes.CDLL:
    """Open a library with its symbols visible to those opened later."""
    return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
