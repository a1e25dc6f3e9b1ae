"""One thread for all DCMI calls, which survives calls that never return.

A call into a hung chip cannot be interrupted. It is written off at its deadline: the caller gets
`Slow`, its thread is left behind, and a new thread serves the other calls. While a call on a device
has not returned, the worker makes no other on it, so a hung chip costs one thread, not one for each
poll, and a late answer is the newest one. A call counts as hung, and its caller gets `Busy`, when
one C function has not returned for `HUNG_SECONDS`: slowness alone is no fault.

A hung call beside which an `alone` one ran calls no other function if it returns after all, and its
answer is dropped.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, Final, TypeVar, TypeVarTuple, cast

import trio

from trio_npu_dra.ascend.dcmi._codes import NOT_READY, TIME_OUT
from trio_npu_dra.ascend.dcmi._library import follow
from trio_npu_dra.ascend.dcmi.errors import Busy, NotReady, Slow
from trio_npu_dra.ascend.dcmi.job import HungCall, Job, call_text
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

DEADLINE_SECONDS: Final = 5.0
HUNG_SECONDS: Final = 10.0
_QUIET_SECONDS: Final = 3600.0  # between two log lines about slow calls on one device
_STUCK_SECONDS: Final = 120.0  # each call has a deadline
MAX_WRITTEN_OFF: Final = 257
"""A bound for threads, reached only when every device hangs.

One call can be out for each chip, for its RoCE port, its vNPUs and its card, and one for the Ascend
driver as a whole; there are at most 64 chips on 64 cards.
"""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DcmiWorker:
    """Runs functions one after another on a thread of its own; see `open_worker`.

    Callers take turns by the function that they call: a reading of each chip of the node is in
    nobody's way. An urgent call goes first.
    """

    def __init__(
        self, *, deadline_seconds: float, hung_seconds: float, max_written_off: int
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._hung_seconds = hung_seconds
        self._max_written_off = max_written_off
        self._logged: dict[Hashable, float] = {}
        self._line: list[Job] = []
        self._line_moved = trio.Event()
        self._is_closed = False
        self._turns = count(1)
        self._last_turn: dict[str, int] = {}  # by the name of the call
        self._was_urgent = False
        self._written_off: set[Job] = set()
        self._apart: Observable[frozenset[Job]] = Observable(frozenset())
        self._is_alone = Observable(False)  # whether an `alone` call runs, or is the next to run
        self._thread: _Thread | None = None

    @property
    def written_off(self) -> int:
        """How many calls passed their deadline and have not returned."""
        return len(self._written_off)

    @property
    def hung(self) -> tuple[HungCall, ...]:
        """Those calls, oldest first."""
        calls = (
            HungCall(function=job.where, device=job.device, since=job.began)
            for job in self._written_off
        )
        return tuple(sorted(calls, key=lambda call: call.since))

    def in_the_way(self, beside: Callable[[Hashable], bool]) -> int:
        """How many calls keep an `alone` call from running; *beside* as for `call`."""
        return sum(
            not beside(out.device) or out.seconds_in_function() < self._hung_seconds
            for out in self._written_off
        )

    async def call(
        self,
        function: Callable[[*Ts], T],
        *arguments: *Ts,
        deadline_seconds: float | None = None,
        device: Hashable = None,
        alone: bool = False,
        beside: Callable[[Hashable], bool] = lambda _: False,
        apart: bool = False,
        is_urgent: Callable[[], bool] = lambda: False,
        on_late: Callable[[T], object] | None = None,
    ) -> T:
        """Run `function(*arguments)` on the worker's thread and return what it returns.

        A cancelled caller returns at once; the call itself continues, and its deadline holds.

        Args:
            function: What to call.
            arguments: Its arguments.
            deadline_seconds: How long it may take from its start, if not the worker's default;
                waiting in line is not counted.
            device: The device that the call would hang on; None is the Ascend driver as a whole.
            alone: Whether no other call may be out, not even a written-off one (`Dcmi.init`).
            beside: The devices whose hung calls do not matter to an `alone` call.
            apart: Whether it runs beside the other calls, on a thread of its own. It and an `alone`
                call wait for each other.
            is_urgent: Whether it goes first of those in line, asked whenever one is taken.
            on_late: Called in trio's thread with a result that comes after the deadline, before any
                other call on the device. Must not raise.

        Raises:
            Slow: It passed its deadline, or an earlier call on the device is still out.
            Busy: The same, and the call that is out counts as hung.
            NotReady: Too many calls are out, an `alone` one is, or the worker is closed.
        """
        job = Job(
            function=lambda: function(*arguments),
            name=getattr(function, "__name__", type(function).__name__),
            device=device,
            deadline_seconds=deadline_seconds or self._deadline_seconds,
            alone=alone,
            beside=beside,
            is_urgent=is_urgent,
            on_late=on_late,
        )
        if apart:
            await self._run_apart(job)
        else:
            await self._run_in_turn(job)
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    async def _run_in_turn(self, job: Job) -> None:
        """Hand a job to `_serve`; return when it is done."""
        if self._is_closed:
            raise NotReady(NOT_READY, "", "the worker is closed")
        self._line.append(job)
        self._line_moved.set()
        try:
            await job.done.wait()
        except trio.Cancelled:
            job.abandoned = True
            raise

    async def _run_apart(self, job: Job) -> None:
        """Run a job on a thread of its own; return when it is done or left behind."""
        await self._is_alone.wait_until(lambda alone: not alone)
        if refusal := self._refusal(job):
            raise refusal
        thread = _Thread()
        self._apart.set(self._apart.value | {job})
        job.began, job.seen = time.time(), (0, trio.current_time())
        thread.start_job(job, self._returned)
        thread.leave()
        try:
            with trio.move_on_after(job.deadline_seconds):
                await job.done.wait()
        except trio.Cancelled:
            job.abandoned = True
            raise
        finally:
            if not job.done.is_set():
                self._leave_behind(job)
            self._apart.set(self._apart.value - {job})

    async def _serve(self) -> None:
        """Run jobs one by one, until cancelled; callers left over then get an error."""
        try:
            while True:
                await self._line_moved.wait()
                while self._line:
                    job = self._next()
                    with watchdog.step(call_text(job.name, job.device), limit=_STUCK_SECONDS):
                        await self._run(job)
                    self._line.remove(job)
                self._line_moved = trio.Event()
        finally:
            if self._thread is not None:
                self._thread.leave()
            self._is_closed = True
            for job in self._line:
                if not job.done.is_set():
                    job.fail(NotReady(NOT_READY, "", "the worker is closed"))

    def _next(self) -> Job:
        """An urgent job, but not twice in a row; of the others, the kind that ran longest ago."""

        def turn(job: Job) -> tuple[bool, int]:
            is_first = not self._was_urgent and job.is_urgent()
            return not is_first, self._last_turn.get(job.name, 0)

        job = min(self._line, key=turn)
        self._was_urgent = not self._was_urgent and job.is_urgent()
        self._last_turn[job.name] = next(self._turns)
        return job

    async def _run(self, job: Job) -> None:
        """Run one job, or refuse it; return when the thread is free or left behind."""
        self._is_alone.set(job.alone)  # before it waits: no other call is made apart meanwhile
        if job.alone:
            await self._apart.wait_until(lambda jobs: not jobs)
        if job.abandoned:
            pass
        elif refusal := self._refusal(job):
            job.fail(refusal)
        else:
            thread = self._thread = self._thread or _Thread()
            job.began, job.seen = time.time(), (0, trio.current_time())
            thread.start_job(job, self._returned)
            with trio.move_on_after(job.deadline_seconds):
                await job.done.wait()
            if not job.done.is_set():
                thread.leave()
                self._thread = None
                self._leave_behind(job)
        self._is_alone.set(False)

    def _refusal(self, job: Job) -> Busy | NotReady | None:
        """Why *job* may not run now; None if it may."""
        if len(self._written_off) >= self._max_written_off:
            return NotReady(NOT_READY, "", f"{self.written_off} calls have not returned")
        if any(out.alone for out in self._written_off):
            return NotReady(NOT_READY, "", "the library's start has not returned")
        if job.alone:
            in_the_way = self.in_the_way(job.beside)
            if in_the_way:
                return Busy(TIME_OUT, "", f"{in_the_way} other calls have not returned")
            for out in self._written_off:
                if not out.outdate(self._hung_seconds):
                    return Busy(TIME_OUT, "", f"{out.where} has just been called")
        for out in self._written_off | self._apart.value:
            if out.device == job.device:
                return self._lateness(out, f"an earlier {out.where} has not returned")
        return None

    def _lateness(self, out: Job, meaning: str) -> Busy:
        """The error of a caller for which *out* takes too long."""
        is_hung = out.seconds_in_function() >= self._hung_seconds
        return (Busy if is_hung else Slow)(TIME_OUT, "", meaning)

    def _leave_behind(self, job: Job) -> None:
        """Note that *job* is out, and fail it."""
        self._written_off.add(job)
        now = trio.current_time()
        if now - self._logged.get(job.device, -_QUIET_SECONDS) >= _QUIET_SECONDS:
            self._logged[job.device] = now
            job.is_logged = True
            log.warning("DCMI call written off", extra=job.log_fields)
        job.fail(self._lateness(job, f"{job.where} gave no answer in {job.deadline_seconds:g} s"))

    def _returned(self, job: Job, result: Any, error: BaseException | None) -> None:
        """Take a job's result; after the deadline it only frees the device."""
        if job in self._written_off:
            self._written_off.discard(job)
            if job.is_logged:
                log.info("DCMI call came back after its deadline", extra=job.log_fields)
            is_wanted = not job.abandoned and not job.is_outdated
            if error is None and job.on_late is not None and is_wanted:
                job.on_late(result)
        elif not job.done.is_set():
            job.result, job.error = result, error
            job.done.set()


class _Thread:
    """A daemon thread that runs the jobs it is given until it is stopped."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="dcmi", daemon=True).start()

    def start_job(
        self, job: Job, returned: Callable[[Job, Any, BaseException | None], None]
    ) -> None:
        """Run *job*, then call `returned(job, result, error)` in trio's thread."""
        token = trio.lowlevel.current_trio_token()

        def run() -> None:
            result, error = None, None
            follow(job.begin)
            try:
                result = job.function()
            except BaseException as caught:  # noqa: BLE001 - handed to the caller as it is
                error = caught
            with suppress(trio.RunFinishedError):  # at the program's end nobody waits
                token.run_sync_soon(returned, job, result, error)

        self._jobs.put(run)

    def leave(self) -> None:
        """End the thread once its present job returns, if ever."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (run := self._jobs.get()) is not None:
            run()


@asynccontextmanager
async def open_worker(
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
    hung_seconds: float = HUNG_SECONDS,
    max_written_off: int = MAX_WRITTEN_OFF,
) -> AsyncIterator[DcmiWorker]:
    """Start the thread on first use; closing waits for no call.

    Args:
        deadline_seconds: The default deadline of a call.
        hung_seconds: How long a C function may take until the call counts as hung.
        max_written_off: How many calls may be out before all are refused with `NotReady`.
    """
    worker = DcmiWorker(
        deadline_seconds=deadline_seconds,
        hung_seconds=hung_seconds,
        max_written_off=max_written_off,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker._serve)  # noqa: SLF001 - one unit in two halves
        try:
            yield worker
        finally:
            nursery.cancel_scope.cancel()
