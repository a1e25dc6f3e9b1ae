"""asyncio's side: an event loop that runs one step at a time and leaves the rest to trio."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from contextvars import Context
from time import perf_counter
from typing import Any, Final, NoReturn, TypeAlias, TypeVarTuple

import trio

TURNS: Final = 4
"""Turns of asyncio in one step: however busy asyncio is, trio's tasks run in between."""

ArgsT = TypeVarTuple("ArgsT")

STEP_SECONDS: Final = 0.002
"""The turn that begins after this is the last one of its step; those of a call take a quarter."""

_Events: TypeAlias = "list[tuple[selectors.SelectorKey, int]]"


class StepSelector(selectors.EpollSelector):
    """Finds what is ready without waiting for it, and ends the step where asyncio would sleep.

    Args:
        on_work: Called when a sleeping loop has got something to run.

    Attributes:
        asleep: Whether asyncio sleeps: it knows nothing that it could run.
        wake_at: When the next step is due, on trio's clock: -inf at once, inf not by itself.
    """

    def __init__(self, on_work: Callable[[], None]) -> None:
        super().__init__()
        self.asleep = True
        self.wake_at = math.inf
        self._clock = trio.lowlevel.current_clock()
        self._on_work = on_work
        self._end_step: Callable[[], None] = on_work
        self._turns = 0
        self._until = 0.0

    def begin(self, end_step: Callable[[], None]) -> None:
        """Begin a step; another one follows at once unless `select` finds nothing to do."""
        self.asleep = False
        self.wake_at = -math.inf
        self._end_step = end_step
        self._turns = TURNS
        self._until = perf_counter() + STEP_SECONDS

    def select(self, timeout: float | None = None) -> _Events:
        """What is ready now.

        Args:
            timeout: Seconds for which asyncio would sleep if nothing were; None without limit.
        """
        ready = super().select(0)
        self._turns -= 1
        if not ready and timeout != 0:
            self.asleep = True
            self.wake_at = math.inf if timeout is None else self.time() + timeout
            self._end_step()
        elif self._turns <= 0 or perf_counter() >= self._until:
            self._end_step()
        return ready

    def wake(self) -> None:
        """End asyncio's sleep."""
        self.asleep = False
        self._on_work()

    def time(self) -> float:
        """The time of trio's clock."""
        return self._clock.current_time()


class AsyncioLoop(asyncio.SelectorEventLoop):
    """Runs one step when told to.

    Its clock is trio's. It has no signals, child processes and threads: trio has these.

    Args:
        selector: Ends its steps.
        on_failure: Called, from any thread, with an error that nobody handles.
    """

    def __init__(self, selector: StepSelector, on_failure: Callable[[BaseException], None]) -> None:
        # asyncio keeps attributes of its own here; a test compares the names.
        self.steps = selector
        self.on_failure = on_failure
        super().__init__(selector)

    def step(self) -> float:
        """Run until asyncio would sleep, or for `TURNS` turns, or for `STEP_SECONDS`.

        Returns:
            When the next step is due, on trio's clock; -inf at once, inf not by itself.
        """
        self.steps.begin(self.stop)
        super().run_forever()
        return self.steps.wake_at

    def time(self) -> float:
        """The time of trio's clock: timers of asyncio and deadlines of trio mean the same."""
        return self.steps.time()

    def call_soon(
        self, callback: Callable[[*ArgsT], object], *args: *ArgsT, context: Context | None = None
    ) -> asyncio.Handle:
        """Let the next step run *callback*."""
        handle = super().call_soon(callback, *args, context=context)
        if self.steps.asleep:
            self.steps.wake()
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*ArgsT], object],
        *args: *ArgsT,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run *callback* at a time; `call_later` ends here too."""
        handle = super().call_at(when, callback, *args, context=context)
        if self.steps.asleep:
            self.steps.wake()  # this timer may be the first to end
        return handle

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error that nobody handles, and report it."""
        super().default_exception_handler(context)
        error = context.get("exception")
        if error is None:
            error = RuntimeError(context.get("message", "unhandled error in the asyncio loop"))
        self.on_failure(error)

    def run_forever(self) -> NoReturn:
        """Refused: only `step` runs this loop."""
        raise RuntimeError("trio runs this loop, step by step: await what it does instead")

    def run_until_complete(self, future: Any) -> NoReturn:
        """Refused: only `step` runs this loop."""
        raise RuntimeError(f"trio runs this loop: use Loop.in_asyncio for {future!r}")

    def add_signal_handler(
        self, sig: int, callback: Callable[[*ArgsT], object], *args: *ArgsT
    ) -> NoReturn:
        """Refused."""
        raise NotImplementedError(
            f"signal {sig} for {callback!r} {args}: use trio.open_signal_receiver"
        )

    async def subprocess_exec(self, *args: Any, **_: Any) -> NoReturn:
        """Refused."""
        raise NotImplementedError(f"child process {args[1:]}: use trio.run_process")

    async def subprocess_shell(self, *args: Any, **_: Any) -> NoReturn:
        """Refused."""
        raise NotImplementedError(f"child process {args[1:]}: use trio.run_process")

    def run_in_executor(
        self, executor: Any, func: Callable[[*ArgsT], object], *args: *ArgsT
    ) -> NoReturn:
        """Refused, and with it the lookup of a host's name, for which asyncio needs a thread."""
        raise NotImplementedError(
            f"{func!r} {args} in a thread ({executor}): use trio.to_thread.run_sync"
        )
