"""asyncio's loop under trio: what runs when, on which side, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import math
import selectors
import socket
import threading
import time
import weakref
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_npu_dra.kit.grpc.loop import Loop
from trio_npu_dra.kit.grpc.loop.asyncio_loop import STEP_SECONDS, TURNS, AsyncioLoop, StepSelector


async def test_asyncio_knows_its_loop_and_task_inside_a_step_only(loop: Loop) -> None:
    """Below a handler all is trio: there is no running loop and no current task."""

    async def look() -> tuple[bool, bool]:
        inside = asyncio.current_task() is not None
        return inside, asyncio.get_running_loop() is loop.asyncio

    async def no_loop() -> bool:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return asyncio.current_task(loop.asyncio) is None

    async def ask_trio() -> bool:
        return await loop.in_trio(no_loop)

    assert await loop.in_asyncio(look()) == (True, True)
    assert await loop.in_asyncio(ask_trio())
    assert await no_loop()
    assert not loop.asyncio.is_running()


async def test_results_and_errors_cross_both_ways(loop: Loop) -> None:
    """What a function of one side returns or raises reaches the other one as it is."""

    async def of_trio(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 60 // number

    async def of_asyncio(number: int) -> int:
        return await loop.in_trio(of_trio, number) + 1

    assert await loop.in_asyncio(of_asyncio(20)) == 4
    with pytest.raises(ZeroDivisionError):
        await loop.in_asyncio(of_asyncio(0))


async def test_a_cancelled_wait_ends_its_task_first(loop: Loop) -> None:
    """Trio cancels a call of asyncio and waits until that has cleaned up."""
    begun, cleaned_up = trio.Event(), trio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.set()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.in_asyncio, wait())
            await begun.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert cleaned_up.is_set()


async def test_a_call_that_outruns_its_cancellation_has_a_result(loop: Loop) -> None:
    """Nothing that was done is lost: the waiting side gets it, whichever side was cancelled."""

    async def of_asyncio() -> str:
        scope.cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "of asyncio"
        return "not cancelled"

    async def of_trio() -> str:
        with trio.CancelScope(shield=True):
            begun.set()
            await wait_all_tasks_blocked()
        return "of trio"

    async def cancel_trio() -> str:
        call = loop.in_trio(of_trio)
        await begun.wait()
        assert call.cancel()
        result = await call
        assert not call.cancel()
        return result

    begun = asyncio.Event()
    with trio.CancelScope() as scope:
        scope.cancel()
        # Cancelled before it begins, such a call does nothing at all.
        await loop.in_asyncio(of_asyncio())
    assert scope.cancelled_caught
    with trio.CancelScope() as scope:
        assert await loop.in_asyncio(of_asyncio()) == "of asyncio"
    assert not scope.cancelled_caught
    assert await loop.in_asyncio(cancel_trio()) == "of trio"


async def test_a_cancelled_task_cancels_what_it_awaits_in_trio(loop: Loop) -> None:
    """It ends when trio's function has cleaned up, behind a shield too."""
    begun, ends = trio.Event(), list[str]()

    async def of_trio() -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await wait_all_tasks_blocked()
            ends.append("trio")

    async def of_asyncio() -> None:
        try:
            await loop.in_trio(of_trio)
        finally:
            ends.append("asyncio")

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(of_asyncio())

    async def cancelled(task: asyncio.Task[None]) -> bool:
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    task = await loop.in_asyncio(begin())
    await begun.wait()
    assert await loop.in_asyncio(cancelled(task))
    assert ends == ["trio", "asyncio"]


async def test_a_call_that_is_cancelled_at_once_never_begins(loop: Loop) -> None:
    """Trio's function does not run if its future is cancelled before."""
    begun = list[bool]()

    async def of_trio() -> None:
        begun.append(True)

    async def of_asyncio() -> None:
        call = loop.in_trio(of_trio)
        call.cancel()
        await call

    with pytest.raises(RuntimeError, match="asyncio has cancelled"):
        await loop.in_asyncio(of_asyncio())
    assert not begun


async def test_errors_leave_no_cycle_behind(loop: Loop) -> None:
    """An error that crossed, and what its function was given, is free without the collector."""

    class Bulky:
        pass

    async def of_trio(_: Bulky) -> None:
        raise KeyError

    async def of_asyncio(bulky: Bulky) -> None:
        await loop.in_trio(of_trio, bulky)

    async def call() -> weakref.ref[Bulky]:
        bulky = Bulky()
        with pytest.raises(KeyError) as caught:
            await loop.in_asyncio(of_asyncio(bulky))
        del caught
        return weakref.ref(bulky)

    gc.disable()
    try:
        left = await call()
        await loop.synchronize()
        assert left() is None
    finally:
        gc.enable()


async def test_timers_follow_trios_clock(mock_clock: MockClock, loop: Loop) -> None:
    """They run in their order, and one that trio sets is not missed by a loop that sleeps."""
    ran, last = list[str](), trio.Event()
    loop.asyncio.call_later(30, last.set)
    await wait_all_tasks_blocked()
    loop.asyncio.call_later(20, ran.append, "second")
    loop.asyncio.call_later(10, ran.append, "first")
    await wait_all_tasks_blocked()
    mock_clock.jump(15)
    await wait_all_tasks_blocked()
    assert ran == ["first"]
    mock_clock.jump(15)
    await last.wait()
    assert ran == ["first", "second"]


async def test_cancelled_timers_do_not_add_up(loop: Loop) -> None:
    """Of 5,000 cancelled deadlines hardly any stays in memory."""

    class Deadline:
        def __call__(self) -> None:
            raise AssertionError("cancelled")

    alive = weakref.WeakSet[Deadline]()
    for _ in range(50):
        for _ in range(100):
            alive.add(deadline := Deadline())
            loop.asyncio.call_later(3600, deadline).cancel()
        del deadline
        await loop.synchronize()
    assert len(alive) <= 200


async def test_a_busy_asyncio_leaves_trio_its_turns(loop: Loop) -> None:
    """A callback that keeps calling itself neither stops tasks of trio nor their calls."""
    turns, enough = 0, 1000

    def again() -> None:
        nonlocal turns
        turns += 1
        if turns < enough:
            loop.asyncio.call_soon(again)

    again()
    for _ in range(10):
        await trio.lowlevel.checkpoint()
        await loop.synchronize()
    assert turns < enough
    enough = 0


@pytest.mark.parametrize("seconds", [0, STEP_SECONDS])
async def test_a_step_has_few_turns_and_fewer_slow_ones(seconds: float) -> None:
    """After a step that had not enough, the next one is due at once; then none is."""
    turns, failures = 10, list[BaseException]()
    loop = AsyncioLoop(StepSelector(lambda: None), failures.append)

    def turn() -> None:
        nonlocal turns
        turns -= 1
        time.sleep(seconds)
        if turns:
            loop.call_soon(turn)

    loop.call_soon(turn)
    assert loop.step() == -math.inf
    assert 10 > turns >= 10 - (2 if seconds else TURNS)
    while loop.step() == -math.inf:
        assert turns >= 0
    assert turns == 0
    assert loop.steps.wake_at == math.inf
    loop.close()


async def test_other_threads_wake_the_loop(loop: Loop) -> None:
    """`call_soon_threadsafe` is asyncio's own."""
    woken = trio.Event()
    await trio.to_thread.run_sync(loop.asyncio.call_soon_threadsafe, woken.set)
    await woken.wait()


async def test_sockets_are_served(loop: Loop) -> None:
    """Bytes arrive in asyncio while trio does something else, and the other way."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await loop.in_asyncio(asyncio.open_connection(sock=ours))

        async def answer() -> None:
            writer.write((await reader.readline()).upper())
            writer.close()
            await writer.wait_closed()

        theirs.setblocking(False)
        peer = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.in_asyncio, answer())
            await peer.send_all(b"hello\n")
            assert await peer.receive_some() == b"HELLO\n"
            assert not await peer.receive_some()


@pytest.mark.parametrize(
    ("method", "args", "instead"),
    [
        ("add_signal_handler", (15, print), "open_signal_receiver"),
        ("subprocess_exec", (asyncio.SubprocessProtocol, "true"), "run_process"),
        ("subprocess_shell", (asyncio.SubprocessProtocol, "true"), "run_process"),
        ("run_in_executor", (None, print), "to_thread"),
        ("getaddrinfo", ("localhost", 80), "to_thread"),
        ("run_forever", (), "trio runs this loop"),
        ("run_until_complete", (None,), "trio runs this loop"),
    ],
)
async def test_what_trio_has_is_refused(
    loop: Loop, method: str, args: tuple[Any, ...], instead: str
) -> None:
    """The error says what to use."""

    async def call() -> None:
        await getattr(loop.asyncio, method)(*args)

    with pytest.raises((NotImplementedError, RuntimeError), match=instead):
        await loop.in_asyncio(call())


async def test_debug_mode_is_asyncios_own(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    """It tells who holds up the loop, and a thread that calls in an unsafe way."""

    async def call_from_a_thread() -> None:
        thread = threading.Thread(target=call_soon)
        thread.start()
        thread.join()

    def call_soon() -> None:
        with pytest.raises(RuntimeError, match="Non-thread-safe"):
            loop.asyncio.call_soon(print)
        refused.append(True)

    refused = list[bool]()

    loop.asyncio.set_debug(True)
    loop.asyncio.slow_callback_duration = 0
    await loop.in_asyncio(call_from_a_thread())
    assert refused
    assert "Executing" in caplog.text
    loop.asyncio.set_debug(False)


async def test_our_attributes_hide_none_of_asyncios(loop: Loop) -> None:
    """What asyncio's loop and selector have is theirs; an upgrade may add a name of ours."""
    plain = asyncio.SelectorEventLoop()
    plain.close()
    assert {*vars(loop.asyncio)} - {*vars(plain)} == {"steps", "on_failure"}
    assert not {"steps", "on_failure", "step"} & {*dir(asyncio.SelectorEventLoop)}
    ours = {"_clock", "_on_work", "_end_step", "_turns", "_until", "asleep", "wake_at", "begin"}
    ours |= {"wake", "time"}
    with selectors.EpollSelector() as selector:
        assert not ours & {*dir(selector)}
        assert {*vars(loop.asyncio.steps)} <= ours | {*vars(selector)}
