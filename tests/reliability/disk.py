"""The states that files go through while something is done to them: what a kill can leave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

State = dict[Path, bytes]
"""All files, with their content."""

_CHANGES = frozenset({"open", "os.chmod", "os.mkdir", "os.remove", "os.rename"})


class Disk:
    """Some folders."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders

    @contextmanager
    def states(self) -> Iterator[list[State]]:
        """Every state from the beginning to the end of the body: one before each system call.

        A write and its fsync are one step: a process that is killed leaves what it wrote.
        """
        seen = [self._state()]

        def look() -> None:
            state = self._state()
            if state != seen[-1]:
                seen.append(state)

        _watcher.append(look)
        try:
            yield seen
        finally:
            _watcher.remove(look)
            look()

    def restore(self, state: State) -> None:
        """Make the folders what they were; those in them stay, empty or not."""
        for folder in self._folders:
            for path in folder.rglob("*"):
                if path.is_file():
                    path.unlink()
        for path, content in state.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    def _state(self) -> State:
        return {
            path: path.read_bytes()
            for folder in self._folders
            for path in folder.rglob("*")
            if path.is_file()
        }


# Python tells an audit hook of each system call on files just before it makes it. A hook cannot be
# taken out again: this one asks who watches.
_watcher: list[Callable[[], None]] = []


def _tell(event: str, arguments: Sequence[object]) -> None:
    del arguments
    if _watcher and event in _CHANGES:
        look = _watcher.pop()  # which itself opens files
        try:
            look()
        finally:
            _watcher.append(look)


sys.addaudithook(_tell)
