"""Calls that run apart from all others, each on a thread of its own."""

from contextlib import suppress
from functools import partial

import pytest
import trio
import trio.testing

from dev.rig.waiting import until
from tests.ascend.dcmi.test_worker import Gate, gate, until_written_off
from trio_npu_dra.ascend.dcmi.errors import DcmiError, Slow
from trio_npu_dra.ascend.dcmi.worker import open_worker


async def test_a_call_that_runs_apart_keeps_no_other_waiting() -> None:
    """Nor does one on another chip; a second one on its chip is refused until it is back."""
    async with open_worker() as worker, trio.open_nursery() as nursery:
        with gate() as it:
            call = partial(worker.call, it.hang, device="a", apart=True)
            nursery.start_soon(call)
            await until(it.entered.is_set)
            assert await worker.call(abs, -1) == 1
            assert await worker.call(abs, -2, device="b", apart=True) == 2
            with pytest.raises(Slow, match="has not returned"):
                await worker.call(abs, -3, device="a", apart=True)
            assert worker.written_off == 0
    async with open_worker() as worker:
        assert await worker.call(abs, -4, device="a", apart=True) == 4


async def test_calls_that_run_apart_and_one_that_runs_alone_wait_for_each_other() -> None:
    """The library reads its list of cards beside no other call."""
    order: list[str] = []
    async with open_worker() as worker, trio.open_nursery() as nursery:
        with gate() as first, gate() as second:

            async def call(it: Gate, how: str) -> None:
                await worker.call(it.hang, alone=how == "alone", apart=how == "apart")
                order.append(how)

            nursery.start_soon(call, first, "apart")
            await until(first.entered.is_set)
            nursery.start_soon(call, second, "alone")
            await trio.testing.wait_all_tasks_blocked()
            assert not second.entered.is_set()
            first.let_go()
            await until(second.entered.is_set)
            nursery.start_soon(call, first, "apart")
            await trio.testing.wait_all_tasks_blocked()
            assert order == ["apart"]
            second.let_go()
    assert order == ["apart", "alone", "apart"]


async def test_calls_that_run_apart_in_turn_keep_none_waiting_that_runs_alone() -> None:
    """Nor the readings behind it: one that hangs on each chip is a deadline, not one a chip."""
    order: list[str] = []
    async with open_worker() as worker, trio.open_nursery() as nursery:
        with gate() as it:

            async def on_each_chip() -> None:
                for chip in ("a", "b"):
                    with suppress(DcmiError):
                        await worker.call(it.hang, device=chip, apart=True, deadline_seconds=0.02)
                    order.append(chip)

            nursery.start_soon(on_each_chip)
            await until(it.entered.is_set)
            with suppress(DcmiError):
                await worker.call(abs, -1, alone=True)
            order.append("alone")
    assert order == ["a", "alone", "b"]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_call_that_runs_apart_and_does_not_return_is_left_behind(
    is_cancelled: bool,
) -> None:
    """At its deadline, or when its caller is cancelled; until then its chip gets no other call."""
    async with open_worker() as worker:
        with gate() as it:
            with trio.move_on_after(0.01 if is_cancelled else 5), pytest.raises(Slow):
                await worker.call(it.hang, device="a", apart=True, deadline_seconds=0.02)
            assert worker.written_off == 1
            with pytest.raises(Slow):
                await worker.call(abs, -1, device="a", apart=True)
            assert await worker.call(abs, -1, device="b") == 1
        await until_written_off(worker, 0)
        assert await worker.call(abs, -1, device="a", apart=True) == 1
