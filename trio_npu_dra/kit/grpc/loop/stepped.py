"""trio's side: the tasks that run the steps, and the calls that cross."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import trio

from trio_npu_dra.kit.grpc.loop.asyncio_loop import AsyncioLoop, StepSelector
from trio_npu_dra.kit.grpc.loop.crossings import TrioCall, wait_for

ResultT = TypeVar("ResultT")


class Loop:
    """A loop of asyncio under trio; made by `open_loop`.

    Args:
        nursery: For the tasks of the loop.

    Attributes:
        asyncio: The loop as asyncio knows it.
        failure: The first error that nobody handled.
        inside: Around those who use the loop; cancelled by a failure.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.asyncio = AsyncioLoop(StepSelector(self._on_work), self.fail)
        self.failure: BaseException | None = None
        self.inside = trio.CancelScope()
        self._nursery = nursery
        self._trio = trio.lowlevel.current_trio_token()
        self._stepping = trio.CancelScope(shield=True)
        self._alarm = trio.CancelScope()
        self._work = trio.lowlevel.ParkingLot()
        self._calls: set[TrioCall[Any]] = set()

    async def in_asyncio(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine of asyncio as a task; called by trio.

        A cancellation cancels the task and waits for its end.
        """
        return await wait_for(self.asyncio.create_task(coroutine))

    def in_trio(
        self, function: Callable[..., Awaitable[ResultT]], *args: Any
    ) -> asyncio.Future[ResultT]:
        """Run a function of trio as a task; called, and the future awaited, by asyncio.

        Cancelling the future cancels the function. The future is done when the function has ended,
        and has its result if it returned all the same.
        """
        call = TrioCall(self.asyncio, function, args)
        self._calls.add(call)
        self._nursery.start_soon(self._run_call, call)
        return call

    async def synchronize(self) -> None:
        """Wait until asyncio has run what is ready now."""
        await self.in_asyncio(asyncio.sleep(0))

    def fail(self, error: BaseException) -> None:
        """End those who use the loop because of an error; from any thread."""
        if self.failure is None:
            self.failure = error
        # The collector of garbage can get here when trio has ended.
        with suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(self.inside.cancel)

    async def run(self) -> None:
        """Run steps until `close`; a cancellation from outside waits for that."""
        try:
            with self._stepping:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._follow_events)
                    nursery.start_soon(self._follow_work)
        finally:
            self.asyncio.close()

    async def close(self) -> None:
        """Cancel all that runs, wait for its end, and run no more steps."""
        try:
            with trio.CancelScope(shield=True):
                await self.in_asyncio(self._wind_up())
        finally:
            self._stepping.cancel()

    async def _run_call(self, call: TrioCall[Any]) -> None:
        try:
            await call.run()
        except BaseException as error:  # noqa: BLE001 - such as SystemExit
            self.fail(error)
        finally:
            self._calls.discard(call)
            del call  # as in TrioCall.run: an error keeps this frame too

    @trio.lowlevel.enable_ki_protection
    async def _follow_events(self) -> None:
        """Run a step whenever a socket of asyncio is ready, or another thread calls."""
        events = self.asyncio.steps.fileno()
        while True:
            await trio.lowlevel.wait_readable(events)
            if not self._step():
                self._on_work()

    @trio.lowlevel.enable_ki_protection
    async def _follow_work(self) -> None:
        """Run a step whenever trio has made work for asyncio, or a timer ends."""
        while True:
            with trio.CancelScope() as self._alarm:
                while True:
                    if self._step():
                        await self._work.park()
                    else:
                        await trio.lowlevel.checkpoint()

    def _on_work(self) -> None:
        self._work.unpark()

    def _step(self) -> bool:
        """Run a step; returns whether asyncio sleeps after it."""
        try:
            wake_at = self.asyncio.step()
        except BaseException as error:  # noqa: BLE001 - SystemExit in a callback; others asyncio has
            self.fail(error)
            return False
        if wake_at == -math.inf:
            return False
        if wake_at != self._alarm.deadline:
            self._alarm.deadline = wake_at
        return True

    async def _wind_up(self) -> None:
        """Cancel the tasks of asyncio and the calls into trio until none is left."""
        await asyncio.sleep(0)  # transports that were closed let go of their sockets
        while left := {*asyncio.all_tasks(), *self._calls} - {asyncio.current_task()}:
            for future in left:
                future.cancel()
            await asyncio.wait(left)
        await self.asyncio.shutdown_asyncgens()


@asynccontextmanager
async def open_loop() -> AsyncIterator[Loop]:
    """Run a loop of asyncio while inside; leaving waits for all that runs on it.

    An error raised inside leaves as it is, without an exception group. An error that nobody handles
    in asyncio cancels what is inside and leaves in place of that.
    """
    error_inside: Exception | None = None
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery)
        nursery.start_soon(loop.run)
        try:
            with loop.inside:
                yield loop
        except Exception as error:  # noqa: BLE001 - raised again below
            error_inside = error
        finally:
            await loop.close()
    if loop.failure is not None:
        raise loop.failure from error_inside
    if error_inside is not None:
        raise error_inside
