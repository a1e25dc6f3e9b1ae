"""Prepare and unprepare may be cancelled at any checkpoint: they leave whole claims."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import NodeOnDisk, claim, ref, result
from trio_npu_dra.agent.claims.service import NodeClaims
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.base.errors import Unavailable

A, B = ref("a"), ref("b")


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope just before the n-th step of any task: its next checkpoint raises."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self._scope = scope
        self._steps_left = step

    @property
    def has_fired(self) -> bool:
        """Whether there were that many steps."""
        return self._steps_left <= 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count."""
        del task
        self._steps_left -= 1
        if self._steps_left == 0:
            self._scope.cancel()


async def cancelled_at(step: int, call: Callable[[], Awaitable[object]]) -> bool:
    """Run *call* and cancel it at a step.

    Returns:
        Whether it took that many steps.
    """
    with trio.CancelScope() as scope:
        instrument = CancelAtStep(scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            await call()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return instrument.has_fired


async def be_at_claims_for_a_while(
    ledger: Ledger, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Be another call in its critical section."""
    async with ledger.exclusive():
        task_status.started()
        await trio.sleep(0.01)


def has_whole_claims(node: NodeOnDisk) -> bool:
    """Whether each CDI file has its record and no part of a file is left."""
    return node.cdi_uids() <= node.record_uids() and not node.unfinished_files()


async def start_on(node: NodeOnDisk) -> NodeClaims:
    """An instance that has read its records."""
    ledger = node.ledger()
    async with ledger.exclusive():
        return node.start(ledger=ledger)


@pytest.mark.parametrize("is_contended", [False, True])
@pytest.mark.parametrize("verb", ["prepare", "unprepare"])
async def test_a_call_can_be_cancelled_at_each_checkpoint(
    quick_node: NodeOnDisk, verb: str, is_contended: bool, autojump_clock: MockClock
) -> None:
    """Through an API outage and a wait for another call; the next call completes it."""
    del autojump_clock
    node, is_prepare = quick_node, verb == "prepare"
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    step, goes_on, seen = 1, True, set()
    while goes_on:
        claims = await start_on(node)
        if is_prepare:
            node.source.faults.extend([Unavailable("503", status=503)] * 2)
        else:
            await claims.prepare([A, B])
        async with trio.open_nursery() as nursery:
            if is_contended:
                await nursery.start(be_at_claims_for_a_while, claims._planner.ledger)
            goes_on = await cancelled_at(step, partial(getattr(claims, verb), [A, B]))
        assert has_whole_claims(node)
        assert node.record_uids() == node.cdi_uids()
        seen.add(frozenset(node.record_uids()))
        node.source.faults.clear()

        if is_prepare:
            answer = await claims.prepare([A, B])
            assert [each.error for each in answer.values()] == ["", ""]
            assert node.record_uids() == node.cdi_uids() == {"uid-a", "uid-b"}
        assert await claims.unprepare([A, B]) == {"uid-a": "", "uid-b": ""}
        assert node.record_uids() == node.cdi_uids() == set()
        step += 1

    # An unprepare that waits for no lock has no checkpoint at which it could be cancelled.
    both = {frozenset({"uid-a", "uid-b"})} if is_prepare or is_contended else set()
    assert seen == {frozenset[str](), *both}
    assert step > 10 or not is_prepare
