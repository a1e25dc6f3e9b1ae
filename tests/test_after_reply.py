"""Callbacks just after a reply."""

from collections.abc import Callable
from functools import partial

import trio
from trio.testing import MockClock

from trio_npu_dra.kit.base.after_reply import SECONDS, AfterReply


async def test_functions_are_called_a_moment_later_in_their_order(
    autojump_clock: MockClock,
) -> None:
    """Calls of one moment run together, later ones a moment after them."""
    del autojump_clock
    after_reply = AfterReply()
    seen: list[tuple[float, str]] = []
    began = trio.current_time()

    def note(what: str) -> Callable[[], None]:
        return lambda: seen.append((round(trio.current_time() - began, 6), what))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(after_reply.run)
        after_reply(note("a"))
        await trio.sleep(SECONDS / 2)
        after_reply(note("b"))  # which lets "a" wait no longer
        assert not seen
        await trio.sleep(1 - SECONDS / 2)
        after_reply(note("c"))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert seen == [(SECONDS, "a"), (SECONDS, "b"), (1 + SECONDS, "c")]


async def test_nothing_is_left_out_at_the_end(autojump_clock: MockClock) -> None:
    """Whether it was asked for before `run` began, just before it was cancelled, or after that."""
    del autojump_clock
    after_reply = AfterReply()
    seen: list[str] = []
    after_reply(partial(seen.append, "early"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(after_reply.run)
        await trio.sleep(10 * SECONDS)
        assert seen == ["early"]
        after_reply(partial(seen.append, "late"))
        nursery.cancel_scope.cancel()
    assert seen == ["early", "late"]
    after_reply(partial(seen.append, "too late"))
    assert seen == ["early", "late", "too late"]
