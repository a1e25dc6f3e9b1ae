"""The moments at which a process syncs its files to the disk, or gives them names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

State = dict[str, bytes]
"""Files by name, with their content."""


@contextmanager
def syncs(folder: Path, *, of: object = os.fsync) -> Iterator[list[State]]:
    """The files below *folder* at each call of a function of `os` in the body, by this thread.

    The function is not replaced: Python reports each function call to a profiler.
    """
    seen: list[State] = []

    def look(frame: FrameType, event: str, function: object) -> None:
        del frame
        if event == "c_call" and function is of:
            sys.setprofile(None)  # this function itself calls functions
            files = (path for path in folder.rglob("*") if path.is_file())
            seen.append({path.name: path.read_bytes() for path in files})
            sys.setprofile(look)

    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(None)
