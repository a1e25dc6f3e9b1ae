"""Calls from asyncio into trio and back, as each side sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NoReturn, TypeVar

import trio

ResultT = TypeVar("ResultT")


class TrioCall(asyncio.Future[ResultT], Generic[ResultT]):
    """What asyncio waits for while trio runs a function.

    Cancelling it cancels the function; it is done when the function has ended. If the function
    returns all the same, because a shield let it finish, its value is the result.

    Args:
        loop: The loop of asyncio.
        function: A function of trio.
        args: Its arguments.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[..., Awaitable[ResultT]],
        args: tuple[Any, ...],
    ) -> None:
        super().__init__(loop=loop)
        # Shielded: whoever cancels the tasks around the loop still lets its calls end in order.
        self._scope = trio.CancelScope(shield=True)
        self._function = function
        self._args = args

    def cancel(self, msg: Any = None) -> bool:  # noqa: ARG002 - asyncio's; nobody sees the text
        """Cancel the function, unless it has ended."""
        if self.done():
            return False
        self._scope.cancel()
        return True

    async def run(self) -> None:
        """Run the function, in trio; if it was cancelled before, it does not begin.

        Raises:
            BaseException: What is no error of the function, but ends the process.
        """
        returned = False
        try:
            with self._scope:
                if not self._scope.cancel_called:
                    value = await self._function(*self._args)
                    returned = True
        except Exception as error:  # noqa: BLE001 - whoever waits for the future gets it
            self.set_exception(error)
        except BaseException:
            super().cancel()
            raise
        else:
            if returned:
                self.set_result(value)
            else:
                super().cancel()
        finally:
            # What the function held on to is free now, not when the future is.
            self._function, self._args = _ended, ()
            del self  # an error keeps this frame, and the future keeps the error


async def _ended(*args: Any) -> NoReturn:
    raise AssertionError(f"a call runs once: {args}")


class _Wait:
    """One wait of trio for asyncio.

    Attributes:
        raise_cancelled: Raises trio's Cancelled; None while nobody has cancelled the wait.
    """

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.raise_cancelled: Callable[[], NoReturn] | None = None
        self._future = future
        self._task = trio.lowlevel.current_task()
        future.add_done_callback(self._resume)

    def abort(self, raise_cancelled: Callable[[], NoReturn]) -> trio.lowlevel.Abort:
        """Pass a cancellation on; the wait goes on."""
        self.raise_cancelled = raise_cancelled
        self._future.cancel()
        return trio.lowlevel.Abort.FAILED

    def _resume(self, _: asyncio.Future[Any]) -> None:
        trio.lowlevel.reschedule(self._task)


async def wait_for(future: asyncio.Future[ResultT]) -> ResultT:
    """Wait in trio for what asyncio does.

    A cancellation cancels the future and waits until that is done. If the future ends otherwise
    all the same, this is the result.

    Raises:
        RuntimeError: asyncio itself has cancelled the future.
    """
    wait = _Wait(future)
    try:
        await trio.lowlevel.wait_task_rescheduled(wait.abort)
        if not future.cancelled():
            return future.result()
        if wait.raise_cancelled is not None:
            wait.raise_cancelled()
        raise RuntimeError("asyncio has cancelled a call that trio waits for")
    finally:
        del future, wait  # an error keeps this frame, and the future keeps the error
