"""How often tasks get their turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class _Counted(trio.abc.Instrument):
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio's interface
        """A task begins a turn."""
        self.count += 1


@contextmanager
def turns() -> Iterator[_Counted]:
    """Count the turns of all tasks."""
    counted = _Counted()
    trio.lowlevel.add_instrument(counted)
    try:
        yield counted
    finally:
        trio.lowlevel.remove_instrument(counted)
