"""The watchdog names a loop that is stuck, and none that waits for an event."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from trio_npu_dra.kit.base import watchdog


async def test_a_step_past_its_limit_is_named_until_it_ends(autojump_clock: MockClock) -> None:
    """Other steps, of the same name too, do not hide it; a cancelled one has ended."""
    del autojump_clock

    async def look(seconds: float) -> None:
        with watchdog.step("look", limit=5):
            await trio.sleep(seconds)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look, 7)
        nursery.start_soon(look, 70)
        with watchdog.step("slow look", limit=60):
            await trio.sleep(6)
            line = "look has taken 6 s, at most 5 s is normal"
            assert watchdog.overdue() == (line, line)
            await trio.sleep(60)
            assert len(watchdog.overdue()) == 2
        assert len(watchdog.overdue()) == 1
        nursery.cancel_scope.cancel()
    assert watchdog.overdue() == ()
