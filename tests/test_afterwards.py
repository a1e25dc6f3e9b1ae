"""What is done a moment later."""

from collections.abc import Callable
from functools import partial

import trio
from trio.testing import MockClock

from trio_npu_dra.kit.base.afterwards import SECONDS, Afterwards


async def test_functions_are_called_a_moment_later_in_their_order(
    autojump_clock: MockClock,
) -> None:
    """Together, and others that come later a moment after these."""
    del autojump_clock
    afterwards = Afterwards()
    seen: list[tuple[float, str]] = []
    began = trio.current_time()

    def note(what: str) -> Callable[[], None]:
        return lambda: seen.append((round(trio.current_time() - began, 6), what))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(afterwards.run)
        afterwards(note("a"))
        await trio.sleep(SECONDS / 2)
        afterwards(note("b"))  # which lets "a" wait no longer
        assert not seen
        await trio.sleep(1 - SECONDS / 2)
        afterwards(note("c"))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert seen == [(SECONDS, "a"), (SECONDS, "b"), (1 + SECONDS, "c")]


async def test_nothing_is_left_out_at_the_end(autojump_clock: MockClock) -> None:
    """Whether it was asked for before `run` began, just before it was cancelled, or after that."""
    del autojump_clock
    afterwards = Afterwards()
    seen: list[str] = []
    afterwards(partial(seen.append, "early"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(afterwards.run)
        await trio.sleep(10 * SECONDS)
        assert seen == ["early"]
        afterwards(partial(seen.append, "late"))
        nursery.cancel_scope.cancel()
    assert seen == ["early", "late"]
    afterwards(partial(seen.append, "too late"))
    assert seen == ["early", "late", "too late"]
