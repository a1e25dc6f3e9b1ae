"""A latest value that tasks can wait on.

Writers never block and never queue: a slow reader skips values in between and always ends with the
newest. So ten faults in a burst cost a publisher one write.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Any, Final, Generic, TypeVar

import trio

T = TypeVar("T")

LAZY_SECONDS: Final = 0.05
"""How long `derive` leaves a change of a lazy source alone."""


class Observable(Generic[T]):
    """One value, replaced as a whole, with any number of waiting readers, in one trio run."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._version = 0
        self._changed = trio.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def value(self) -> T:
        """The newest value."""
        return self._value

    def set(self, value: T) -> bool:
        """Replace the value, and return whether it changed; an equal value wakes no reader."""
        if value == self._value:
            return False
        self._value = value
        self._version += 1
        self._changed.set()
        self._changed = trio.Event()
        for listener in self._listeners:
            listener()
        return True

    def changes(self) -> AsyncIterator[T]:
        """Iterate over the present value, then the newest after each change.

        A loop over it may end at any time, because there is nothing to close.
        """
        return _Changes(self)

    async def wait_until(self, is_wanted: Callable[[T], bool]) -> T:
        """Return the value as soon as it is wanted, perhaps without a wait."""
        while not is_wanted(self._value):
            await self._changed.wait()
        return self._value

    async def wait_for_other(self, value: T) -> T:
        """Return the value as soon as it differs from *value*, perhaps without a wait."""
        return await self.wait_until(lambda now: now != value)

    @contextmanager
    def _told_to(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call *listener* after each change."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def _newer_than(self, version: int) -> tuple[int, T]:
        while self._version == version:
            await self._changed.wait()
        return self._version, self._value


class _Changes(AsyncIterator[T]):
    # Not an async generator, which would have to be closed when a loop over it ends early.

    def __init__(self, observable: Observable[T]) -> None:
        self._observable = observable
        self._seen = -1

    async def __anext__(self) -> T:
        # Both classes are one unit: only they see versions.
        self._seen, value = await self._observable._newer_than(self._seen)  # noqa: SLF001
        return value


async def derive(
    target: Observable[T],
    function: Callable[[], T],
    *sources: Observable[Any],
    lazily: Collection[Observable[Any]] = (),
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *target* at the value that *function* derives from the sources, until cancelled.

    Sources that change together cost one call of *function*.

    Args:
        target: Gets the derived values.
        function: Reads the sources.
        sources: *target* follows each change immediately.
        lazily: Further sources, which change often and matter little: *target* follows a change
            after `LAZY_SECONDS`, with all changes until then.
        task_status: Started once *target* has a derived value.
    """
    changed, alarm = trio.Event(), trio.CancelScope()

    def note_change() -> None:
        changed.set()

    def note_lazily() -> None:
        if alarm.deadline == inf:
            alarm.deadline = trio.current_time() + LAZY_SECONDS

    with ExitStack() as listening:  # one unit with Observable, as above
        for source in sources:
            listening.enter_context(source._told_to(note_change))  # noqa: SLF001
        for source in lazily:
            listening.enter_context(source._told_to(note_lazily))  # noqa: SLF001
        target.set(function())
        task_status.started()
        while True:
            with alarm:
                await changed.wait()
            changed, alarm = trio.Event(), trio.CancelScope()
            target.set(function())
