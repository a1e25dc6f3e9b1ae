"""Finds loops of the daemon that are stuck.

A loop that waits for an event may wait for ever; a loop that works on something may not. So it
marks each step of its work, with a limit, and `overdue` names the steps that are past theirs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Step:
    name: str
    began: float
    limit: float


_UNDER_WAY: trio.lowlevel.RunVar[dict[_Step, None]] = trio.lowlevel.RunVar("steps under way")


@contextmanager
def step(name: str, *, limit: float) -> Iterator[None]:
    """Mark that a step is under way inside; after *limit* seconds it counts as stuck."""
    steps = _steps()
    mark = _Step(name=name, began=trio.current_time(), limit=limit)
    steps[mark] = None
    try:
        yield
    finally:
        del steps[mark]


def overdue() -> tuple[str, ...]:
    """A line for each step that is past its limit, oldest first."""
    now = trio.current_time()
    return tuple(
        f"{mark.name} has taken {now - mark.began:.0f} s, at most {mark.limit:g} s is normal"
        for mark in _steps()
        if now - mark.began > mark.limit
    )


def _steps() -> dict[_Step, None]:
    try:
        return _UNDER_WAY.get()
    except LookupError:
        steps: dict[_Step, None] = {}
        _UNDER_WAY.set(steps)
        return steps
