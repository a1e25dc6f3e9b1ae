import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from dev.rig.waiting import until
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import Busy, NotReady, Slow
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.dcmi.worker import DEADLINE_SECONDS, DcmiWorker, open_worker
from trio_npu_dra.ascend.health import read_health
from trio_npu_dra.lab.simulator import BoardControl


class Gate:
    """A function that hangs, as a call into a dead chip does, until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    def hang(self) -> str:
        """Return only after `let_go`."""
        self.entered.set()
        self._open.wait()
        return "late"

    def fail(self) -> str:
        """Raise only after `let_go`."""
        raise ValueError(self.hang())

    def let_go(self) -> None:
        """Let all calls return."""
        self._open.set()


@contextmanager
def gate() -> Iterator[Gate]:
    """A gate that opens at the end, so that no thread stays behind."""
    it = Gate()
    try:
        yield it
    finally:
        it.let_go()


async def until_written_off(worker: DcmiWorker, count: int) -> None:
    """Wait for calls to be written off or to come back."""
    with trio.fail_after(5):
        await until(lambda: worker.written_off == count)


async def hang(worker: DcmiWorker, it: Gate, device: object) -> None:
    """Have a call on *device* written off."""
    with pytest.raises(Busy, match="no answer in"):
        await worker.call(it.hang, device=device, deadline_seconds=0.01)


async def test_a_call_returns_or_raises_what_its_function_does() -> None:
    """Arguments and results pass through unchanged; after an error the worker serves on."""
    async with open_worker() as worker:
        with pytest.raises(ZeroDivisionError):
            await worker.call(divmod, 7, 0)
        assert await worker.call(divmod, 7, 2) == (3, 1)


async def test_all_calls_run_on_one_thread_one_after_another() -> None:
    """Ten concurrent callers share one thread that is not trio's, and never overlap."""
    threads: set[int] = set()
    running = 0

    def record() -> None:
        nonlocal running
        running += 1
        assert running == 1
        threads.add(threading.get_ident())
        running -= 1

    async with open_worker() as worker, trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(worker.call, record)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_hung_call_is_written_off_and_the_rest_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Past its deadline a call raises Busy and is named; another device's call works."""
    with gate() as it:
        async with open_worker() as worker:
            before = time.time()
            await hang(worker, it, "npu-0")
            (call,) = worker.hung
            assert (call.function, call.device) == ("hang", "npu-0")
            assert before <= call.since <= time.time()
            assert await worker.call(abs, -1, device="npu-1") == 1
    (line,) = [line for line in caplog.records if "written off" in line.getMessage()]
    assert (vars(line)["function"], vars(line)["device"]) == ("hang", "npu-0")


async def test_no_thread_outlives_its_calls() -> None:
    """One that was left behind ends once its call returns, the last with the worker."""
    others = set(threading.enumerate())

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread not in others]

    with gate() as it, trio.fail_after(5):
        async with open_worker() as worker:
            await hang(worker, it, "npu-0")
            await worker.call(abs, -1, device="npu-1")
            assert [(thread.name, thread.daemon) for thread in threads()] == [("dcmi", True)] * 2
            it.let_go()
            await until(lambda: len(threads()) == 1)
        await until(lambda: not threads())


async def test_an_unused_worker_ends() -> None:
    """On a node without NPUs."""
    with trio.fail_after(5):
        async with open_worker() as worker:
            await trio.testing.wait_all_tasks_blocked()
    assert worker.written_off == 0


async def test_a_device_with_a_call_out_is_skipped_until_that_returns() -> None:
    """Nothing is asked of a hung chip; when its call comes back, it is served again."""
    with gate() as it:
        async with open_worker() as worker:
            await hang(worker, it, "npu-0")
            with pytest.raises(Busy, match="an earlier hang has not returned"):
                await worker.call(abs, -1, device="npu-0")
            it.let_go()
            await until_written_off(worker, 0)
            assert await worker.call(abs, -1, device="npu-0") == 1


async def test_too_many_calls_out_refuse_everything() -> None:
    """When the limit of written-off calls is reached nothing runs, until some return."""
    with gate() as first, gate() as second:
        async with open_worker(max_written_off=2) as worker:
            await hang(worker, first, "npu-0")
            await hang(worker, second, "npu-1")
            assert [call.device for call in worker.hung] == ["npu-0", "npu-1"]
            with pytest.raises(NotReady, match="2 calls have not returned"):
                await worker.call(abs, -1, device="npu-2")
            first.let_go()
            await until_written_off(worker, 1)
            assert await worker.call(abs, -1, device="npu-2") == 1


async def test_init_runs_beside_a_hung_call_that_does_not_matter(dcmi: Dcmi) -> None:
    """If that returns after all it calls nothing else, and its answer is dropped."""
    late: list[int] = []
    refused: list[str] = []
    dcmi.init()
    with gate() as it:

        def two_calls() -> int:
            it.hang()
            try:
                return dcmi.health(ChipRef(1, 0))
            except NotReady as error:
                refused.append(error.function)
            return -1

        async with open_worker(hung_seconds=0) as worker:
            alone = partial(worker.call, abs, -1, alone=True)
            out = partial(worker.call, two_calls, device="npu-0", on_late=late.append)
            with pytest.raises(Busy):
                await out(deadline_seconds=0.01)
            with pytest.raises(Busy, match="1 other calls"):
                await alone(beside=lambda device: device == "npu-1")
            assert await alone(beside=lambda device: device == "npu-0") == 1
            it.let_go()
            await until_written_off(worker, 0)
            assert await worker.call(abs, -1, device="npu-0") == 1
    assert (refused, late) == (["dcmi_get_device_health"], [])


async def test_init_waits_for_a_call_until_it_counts_as_hung() -> None:
    """Until then it may still be reading the tables that init writes."""
    with gate() as it:
        async with open_worker(hung_seconds=3600) as worker:
            await hang(worker, it, "npu-0")
            with pytest.raises(Busy, match="1 other calls"):
                await worker.call(abs, -1, alone=True, beside=lambda _: True)


async def test_nothing_runs_beside_an_init_that_hangs() -> None:
    """While a written-off init is in the library, every call is refused."""
    with gate() as it:
        async with open_worker() as worker:
            with pytest.raises(Busy):
                await worker.call(it.hang, alone=True, deadline_seconds=0.01)
            with pytest.raises(NotReady, match="start has not returned"):
                await worker.call(abs, -1, device="npu-0")


async def test_an_urgent_call_goes_first_and_the_others_take_turns() -> None:
    """By what they call; nor do urgent ones keep all others waiting, however many they are."""
    ran: list[str] = []

    def note(name: str) -> None:
        ran.append(name)

    def tell(name: str) -> None:
        ran.append(name)

    with gate() as it:
        async with open_worker() as worker, trio.open_nursery() as nursery:
            nursery.start_soon(worker.call, it.hang)
            await until(it.entered.is_set)
            for function, names in ((note, "abc"), (tell, "de"), (note, "UVW")):
                for name in names:
                    call = partial(worker.call, is_urgent=name.isupper)
                    nursery.start_soon(call, function, name)
                    await trio.testing.wait_all_tasks_blocked()
            it.let_go()
    assert "".join(ran) == "UdVeWabc"


async def test_a_cancelled_caller_leaves_at_once_and_the_call_is_still_watched() -> None:
    """Cancelling does not wait for the library; the abandoned call is written off in time."""
    with gate() as it:
        async with open_worker() as worker:
            with trio.move_on_after(5) as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(
                        lambda: worker.call(it.hang, device="npu-0", deadline_seconds=0.5)
                    )
                    await until(it.entered.is_set)
                    nursery.cancel_scope.cancel()
            assert not scope.cancelled_caught
            await until_written_off(worker, 1)
            assert await worker.call(abs, -1, device="npu-1") == 1


async def test_a_call_cancelled_in_line_never_runs() -> None:
    """A caller that left before its turn leaves nothing to run."""
    ran: list[int] = []
    with gate() as it:
        async with open_worker() as worker, trio.open_nursery() as nursery:
            nursery.start_soon(hang, worker, it, "npu-0")
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(0):
                await worker.call(ran.append, 1)
            assert await worker.call(abs, -1, device="npu-1") == 1
    assert ran == []


async def test_closing_does_not_wait_for_a_hung_call() -> None:
    """The worker closes while a call is stuck; its caller and those in line get NotReady."""
    refused = []

    async def expect_closed(
        worker: DcmiWorker, function: Callable[[], object], device: str
    ) -> None:
        with pytest.raises(NotReady, match="the worker is closed"):
            await worker.call(function, device=device, deadline_seconds=60)
        refused.append(device)

    with gate() as it:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery, open_worker() as worker:
                nursery.start_soon(expect_closed, worker, it.hang, "npu-0")
                await until(it.entered.is_set)
                nursery.start_soon(expect_closed, worker, threading.get_ident, "npu-1")
                await trio.testing.wait_all_tasks_blocked()
    assert sorted(refused) == ["npu-0", "npu-1"]
    with pytest.raises(NotReady, match="the worker is closed"):
        await worker.call(abs, -1)


async def test_a_result_that_comes_late_is_handed_on(mock_clock: MockClock) -> None:
    """Once; not if its caller was cancelled, nor an error, nor one that was in time."""
    late: list[str] = []
    with gate() as it:
        async with open_worker() as worker:

            async def ask(function: Callable[[], str], device: int) -> None:
                with pytest.raises(Slow):
                    await worker.call(function, device=device, on_late=late.append)

            for device, function in enumerate((it.hang, it.fail, it.hang), start=1):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask, function, device)
                    await trio.testing.wait_all_tasks_blocked()
                    if device == 3:
                        nursery.cancel_scope.cancel()
                    else:
                        mock_clock.jump(DEADLINE_SECONDS)
            mock_clock.jump(DEADLINE_SECONDS)
            await trio.testing.wait_all_tasks_blocked()
            assert worker.written_off == 3
            mock_clock.rate = 1.0
            it.let_go()
            await until_written_off(worker, 0)
            assert await worker.call(str, device=1, on_late=late.append) == ""
    assert late == ["late"]


async def test_a_call_is_slow_before_it_counts_as_hung(mock_clock: MockClock) -> None:
    """After ten seconds here, by looks now and then."""
    with gate() as it:
        async with open_worker(deadline_seconds=2, hung_seconds=10) as worker:
            verdicts = []

            async def ask() -> None:
                try:
                    await worker.call(it.hang, device="npu-0")
                except Busy as error:
                    verdicts.append(type(error))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                mock_clock.jump(2)
            for seconds in (7, 1):
                mock_clock.jump(seconds)
                await ask()
            assert verdicts == [Slow, Slow, Busy]


async def test_a_call_is_named_by_the_function_of_the_library(
    dcmi: Dcmi, control: BoardControl, caplog: pytest.LogCaptureFixture
) -> None:
    """In the error, in the log, and in the list of hung calls."""
    dcmi.init()
    function, chip = "dcmi_get_device_errorcode_v2", ChipRef(1, 0)
    control.hang(function, 1)
    try:
        async with open_worker() as worker:
            with pytest.raises(Slow, match=function):
                await worker.call(read_health, dcmi, chip, device=chip, deadline_seconds=0.05)
            with pytest.raises(Slow, match=f"an earlier {function} has not returned"):
                await worker.call(abs, -1, device=chip)
            assert [call.function for call in worker.hung] == [function]
            control.release(function, 1)
            await until_written_off(worker, 0)
    finally:
        control.release(function, 1)
    (line,) = [line for line in caplog.records if "written off" in line.getMessage()]
    assert vars(line)["function"] == function
