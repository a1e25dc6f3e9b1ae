"""A loop that is stuck is named, one that waits for news is not."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from trio_npu_dra.kit.base import watchdog


async def test_a_step_past_its_limit_is_named(autojump_clock: MockClock) -> None:
    """It is named until it ends; other steps do not hide it."""
    del autojump_clock
    with watchdog.step("quick look", limit=5), watchdog.step("slow look", limit=60):
        await trio.sleep(6)
        assert watchdog.overdue() == ("quick look has taken 6 s, at most 5 s is normal",)
        await trio.sleep(60)
        assert len(watchdog.overdue()) == 2
    assert watchdog.overdue() == ()


async def test_the_same_step_of_two_tasks_is_two_steps(autojump_clock: MockClock) -> None:
    """The end of one does not end the other; a cancelled one has ended."""
    del autojump_clock

    async def look(seconds: float) -> None:
        with watchdog.step("look", limit=1):
            await trio.sleep(seconds)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look, 2)
        nursery.start_soon(look, 20)
        await trio.sleep(5)
        assert len(watchdog.overdue()) == 1
        nursery.cancel_scope.cancel()
    assert watchdog.overdue() == ()
