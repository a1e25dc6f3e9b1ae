"""A latest value that tasks can wait on."""

from functools import partial

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_npu_dra.kit.base.observable import LAZY_SECONDS, Observable, derive


async def test_a_reader_sees_the_value_now_and_the_newest_after_each_change() -> None:
    """Values set while the reader was away collapse to the last; an equal value wakes no reader."""
    observable = Observable(1)
    seen: list[int] = []

    async def read() -> None:
        async for value in observable.changes():
            seen.append(value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        observable.set(2)
        observable.set(3)
        await wait_all_tasks_blocked()
        assert observable.set(3) is False
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert seen == [1, 3]


async def test_a_derived_value_follows_all_its_sources() -> None:
    """One call derives it at the start, and one for all changes that come together."""
    one, other, both = Observable(1), Observable(10), Observable(0)
    calls: list[int] = []

    def add() -> int:
        calls.append(one.value + other.value)
        return calls[-1]

    async with trio.open_nursery() as nursery:
        await nursery.start(derive, both, add, one, other)
        assert both.value == 11
        one.set(2)  # before the task waits for changes
        await wait_all_tasks_blocked()
        assert both.value == 12
        one.set(3)
        other.set(20)
        await wait_all_tasks_blocked()
        assert both.value == 23
        other.set(30)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert calls == [11, 12, 23, 33]


async def test_a_lazy_source_is_followed_a_moment_later(autojump_clock: MockClock) -> None:
    """With all changes until then, and immediately when another source changes."""
    del autojump_clock
    often, seldom, both = Observable(1), Observable(10), Observable(0)
    seen: list[tuple[float, int]] = []
    began = trio.current_time()

    def add() -> int:
        seen.append((round(trio.current_time() - began, 3), often.value + seldom.value))
        return seen[-1][1]

    async with trio.open_nursery() as nursery:
        await nursery.start(partial(derive, both, add, seldom, lazily=[often]))
        often.set(2)
        await trio.sleep(LAZY_SECONDS / 2)
        often.set(3)
        await trio.sleep(10)
        often.set(4)
        seldom.set(20)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()

    assert seen == [(0, 11), (LAZY_SECONDS, 13), (LAZY_SECONDS / 2 + 10, 24)]
