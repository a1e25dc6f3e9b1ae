"""How a loop of asyncio under trio ends: by an error, or because its users leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_npu_dra.kit.grpc.loop import Loop, open_loop


def descriptors() -> set[str]:
    """The numbers of the descriptors that are open."""
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def fails(loop: Loop, error: BaseException) -> None:
    """A callback raises."""

    def callback() -> None:
        raise error

    loop.asyncio.call_soon(callback)


def is_forgotten(loop: Loop, error: BaseException) -> None:
    """A task raises, and its result is never read."""

    async def task() -> None:
        raise error

    loop.asyncio.create_task(task())


def is_trios(loop: Loop, error: BaseException) -> None:
    """A function of trio raises, in a task that waits for it."""

    async def function() -> None:
        raise error

    async def call() -> None:
        await loop.in_trio(function)

    loop.asyncio.create_task(call())


@pytest.mark.parametrize(
    ("how", "error"),
    [
        (fails, KeyError("loud")),
        (fails, SystemExit("loud")),
        (is_forgotten, KeyError("loud")),
        (is_forgotten, SystemExit("loud")),
        (is_trios, SystemExit("loud")),
    ],
)
async def test_an_error_that_nobody_handles_ends_the_loop(
    how: Callable[[Loop, BaseException], None], error: BaseException
) -> None:
    """It cancels what is inside, which may still use the loop to clean up, and leaves."""
    cleaned_up = list[str]()

    async def use() -> None:
        async with open_loop() as loop:
            how(loop, error)
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    cleaned_up.append(await loop.in_asyncio(asyncio.sleep(0, "cleaned up")))

    with trio.fail_after(10), pytest.raises(type(error), match="loud"):
        await use()
    assert cleaned_up == ["cleaned up"]


async def test_a_report_without_an_error_ends_the_loop_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when asyncio destroys a task that waits; the log has asyncio's own words."""

    async def report() -> None:
        async with open_loop() as loop:
            loop.asyncio.call_exception_handler({"message": "a task was destroyed"})
            await trio.sleep_forever()

    with trio.fail_after(10), pytest.raises(RuntimeError, match="was destroyed"):
        await report()
    assert "a task was destroyed" in caplog.text


async def test_leaving_ends_all_that_runs() -> None:
    """Tasks are cancelled, on both sides; generators, sockets and the loop are closed."""
    ends = set[str]()

    async def note(name: str, sleep: Callable[[], Any]) -> None:
        try:
            await sleep()
        finally:
            ends.add(name)

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            ends.add("generator")

    async def begin(loop: Loop) -> AsyncIterator[int]:
        tasks.append(asyncio.create_task(note("asyncio", asyncio.Event().wait)))
        calls.append(loop.in_trio(partial(note, "trio", trio.sleep_forever)))
        generator = numbers()
        await anext(generator)
        return generator

    before = descriptors()
    tasks, calls = list[asyncio.Task[None]](), list[asyncio.Future[None]]()
    with trio.fail_after(10):
        async with open_loop() as loop:
            generator = await loop.in_asyncio(begin(loop))
            await wait_all_tasks_blocked()
    assert ends == {"asyncio", "trio", "generator"}
    assert all(future.cancelled() for future in (*tasks, *calls))
    assert loop.asyncio.is_closed()
    assert descriptors() == before
    with pytest.raises(RuntimeError, match="closed"):
        loop.asyncio.call_soon(print)
    del generator


async def test_a_cancellation_around_the_loop_ends_it_in_order() -> None:
    """The loop and its calls go on until what is inside has ended."""
    ends = list[str]()

    async def of_trio() -> None:
        await wait_all_tasks_blocked()
        ends.append("call")

    async def call() -> None:
        await loop.in_trio(of_trio)

    with trio.fail_after(10), trio.CancelScope() as scope:
        async with open_loop() as loop:
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await loop.in_asyncio(call())
                ends.append("inside")
    assert scope.cancelled_caught
    assert ends == ["call", "inside"]
