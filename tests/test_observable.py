"""A latest value that tasks can wait on."""

import trio
from trio.testing import wait_all_tasks_blocked

from trio_npu_dra.observable import Observable


async def test_a_reader_sees_the_value_now_and_the_newest_after_each_change() -> None:
    """Values set while the reader was away collapse to the last."""
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
        nursery.cancel_scope.cancel()

    assert seen == [1, 3]


async def test_an_equal_value_wakes_nobody() -> None:
    """Equal facts are no change."""
    observable = Observable((1, 2))
    seen: list[tuple[int, int]] = []

    async def read() -> None:
        async for value in observable.changes():
            seen.append(value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        assert observable.set((1, 2)) is False
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert seen == [(1, 2)]
