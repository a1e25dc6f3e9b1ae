"""Steps for tests: each makes a file for a claim and removes it, and fails on request."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import trio

from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.kit.base.errors import DriverError

MARKED = 2
"""Chips below this number need steps in the tests that have claims of both kinds."""


@dataclass
class Marker:
    """A step that makes a file.

    Attributes:
        name: What the record calls it.
        folder: Where its files are; all instances of a node share it.
        seconds: How long each direction takes.
        faults: What goes wrong next, in either direction, when the file is changed already.
        is_for_all: Whether claims on any NPU need it, or those on the first few only.
        busy: Claims that somebody is at, in any instance.
        times: How often it was done or undone.
    """

    name: str
    folder: Path
    seconds: float = 0.0
    faults: deque[DriverError] = field(default_factory=deque)
    is_for_all: bool = True
    busy: set[str] = field(default_factory=set)
    times: int = 0

    def is_needed(self, entry: Entry) -> bool:
        """Who only looks on needs none."""
        return any(
            not hold.observer
            and (self.is_for_all or any(int(node[-1]) < MARKED for node in hold.nodes))
            for hold in entry.holds
        )

    def is_lost(self, entry: Entry) -> bool:
        """Whether somebody removed the file."""
        return not self._file(entry).exists()

    async def do(self, entry: Entry) -> None:
        """Make the file, which the steps before have let be made."""
        self.folder.mkdir(exist_ok=True)
        await self._change(entry, is_there=True)

    async def undo(self, entry: Entry) -> None:
        """Remove it."""
        await self._change(entry, is_there=False)

    async def tidy(self) -> None:
        """Nothing is ever left."""

    async def _change(self, entry: Entry, *, is_there: bool) -> None:
        assert entry.uid not in self.busy, "somebody else is at it"
        self.busy.add(entry.uid)
        self.times += 1
        try:
            await trio.sleep(self.seconds)
            path = self._file(entry)
            if is_there:
                path.write_text("")
            else:
                path.unlink(missing_ok=True)
            await trio.lowlevel.checkpoint()
        finally:
            self.busy.discard(entry.uid)
        if self.faults:
            raise self.faults.popleft()

    def _file(self, entry: Entry) -> Path:
        return self.folder / f"{entry.uid}.{self.name}"


def two_steps(root: Path, *, is_for_all: bool = True) -> tuple[Marker, Marker]:
    """The steps of one instance on a node."""
    folder = root / "markers"
    return (
        Marker("make", folder, is_for_all=is_for_all),
        Marker("flag", folder, is_for_all=is_for_all),
    )


def marks(root: Path) -> set[str]:
    """Which files there are, each named by claim and step."""
    return {path.name for path in (root / "markers").glob("*")}
