"""Find and load libdcmi.so, wherever the Ascend driver's installer or the manifest put it."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trio_npu_dra.ascend import host_path
from trio_npu_dra.ascend.dcmi._codes import NOT_SUPPORT, check
from trio_npu_dra.ascend.dcmi.errors import LibraryMissing, NotSupported
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

_followers = threading.local()


def follow(follower: Callable[[str], object]) -> None:
    """Have *follower* called with the C function of each call that this thread begins."""
    _followers.follower = follower


class Library:
    """The loaded library; calls check the return code."""

    def __init__(self, cdll: ctypes.CDLL, path: str, on_call: OnCall) -> None:
        self.path = path
        self._cdll = cdll
        self._on_call = on_call
        self._functions: dict[str, Any] = {}

    def call(self, function: str, argtypes: Sequence[Any], *arguments: Any) -> None:
        """Call *function* with *arguments*, which are of *argtypes*.

        Raises:
            NotSupported: The library is of a version without this function.
            DcmiError: The function returned a code other than 0.
        """
        resolved = self._resolve(function, argtypes)
        if follower := getattr(_followers, "follower", None):
            follower(function)
        since = time.perf_counter()
        code = resolved(*arguments)
        seconds = time.perf_counter() - since
        self._on_call(DcmiCall(function=function, seconds=seconds, code=code))
        check(code, function)

    def _resolve(self, function: str, argtypes: Sequence[Any]) -> Any:
        """The C function, looked up at its first use: libraries of other versions lack some."""
        found = self._functions.get(function)
        if found is None:
            try:
                found = self._cdll[function]
            except AttributeError:
                meaning = f"{self.path} has no such function; a newer Ascend driver may"
                raise NotSupported(NOT_SUPPORT, function, meaning) from None
            found.argtypes = argtypes
            found.restype = ctypes.c_int
            self._functions[function] = found
        return found


def load(host_root: Path, environ: Mapping[str, str], on_call: OnCall = ignore_call) -> Library:
    """Load libdcmi.so from `LD_LIBRARY_PATH`, else the Ascend driver's folders, else the system's.

    Its dependencies are loaded first, by path, so that it works in a process that was started
    without `LD_LIBRARY_PATH`.

    Raises:
        LibraryMissing: It is nowhere, or does not load; the message says where it was looked for.
    """
    folders = list(_folders(host_root, environ))
    failures = []
    for path in (_find(host_root, folder, NAME) for folder in folders):
        if path is not None:
            _load_dependencies(host_root, folders)
            try:
                return Library(_open(str(path)), str(path), on_call)
            except OSError as error:
                failures.append(str(error))
    try:
        return Library(_open(NAME), NAME, on_call)
    except OSError as error:
        failures.append(str(error))
    raise LibraryMissing(
        f"{NAME} cannot be loaded: looked in {', '.join(map(str, folders))} "
        f"and the system's folders ({'; '.join(failures)}); "
        "install the Ascend driver, or set --host-root or LD_LIBRARY_PATH to where it is seen"
    )


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


def _load_dependencies(host_root: Path, folders: list[Path]) -> None:
    """Load those of the Ascend driver's other libraries that exist."""
    for name in _DEPENDENCIES:
        places = (_find(host_root, folder, name) for folder in folders)
        path = next((place for place in places if place is not None), None)
        if path is not None:
            try:
                _open(str(path))
            except OSError as error:
                log.debug("library of the Ascend driver not preloaded", extra={"error": str(error)})


def _open(name: str) -> ctypes.CDLL:
    """Open a library with its symbols visible to those opened later."""
    return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
