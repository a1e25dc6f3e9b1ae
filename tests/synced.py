"""The moments at which a process syncs its files to the disk, or gives them names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType

State = dict[str, bytes]
"""Files by name, with their content."""


def syncs(folder: Path) -> AbstractContextManager[list[State]]:
    """The files below *folder* at each `os.fsync` in the body, by this thread."""
    return _states(folder, os.fsync)


def renames(folder: Path) -> AbstractContextManager[list[State]]:
    """The files below *folder* at each `os.replace` in the body, by this thread."""
    return _states(folder, os.replace)


@contextmanager
def _states(folder: Path, call: object) -> Iterator[list[State]]:
    """The files below *folder* at each call of a function of `os`.

    The function is not replaced: Python reports each function call to a profiler.
    """
    seen: list[State] = []

    def look(frame: FrameType, event: str, function: object) -> None:
        del frame
        if event == "c_call" and function is call:
            sys.setprofile(None)  # this function itself calls functions
            files = (path for path in folder.rglob("*") if path.is_file())
            seen.append({path.name: path.read_bytes() for path in files})
            sys.setprofile(look)

    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(None)
