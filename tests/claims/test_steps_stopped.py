"""Calls about claims with steps that are cancelled, come side by side, or meet others' work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.claims.marking import marks
from tests.claims.node import NodeOnDisk, claim, ref, result
from tests.claims.restarted import errors_in
from tests.claims.stepping import (
    STATES,
    Driver,
    is_absent,
    is_whole,
    leave,
)
from tests.claims.test_cancelled import cancelled_at
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.claims.repair import keep_cdi_files
from trio_npu_dra.agent.claims.transitions import Goal
from trio_npu_dra.ascend.dcmi.errors import Busy
from trio_npu_dra.kit.base.errors import DriverError


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("goal", [Goal.PREPARE, Goal.UNPREPARE])
async def test_a_call_can_be_cancelled_at_each_checkpoint(
    driver: Driver, state: str, goal: Goal, autojump_clock: MockClock
) -> None:
    """What it leaves is a row of the table: a start settles it, the next call completes it."""
    del autojump_clock
    step, goes_on = 1, True
    while goes_on:
        driver.node.source.store(claim("a", result("npu-2")))
        await leave(driver, state)
        act = driver.prepare if goal is Goal.PREPARE else driver.unprepare
        goes_on = await cancelled_at(step, partial(act, "a"))
        assert driver.node.cdi_uids() <= driver.node.record_uids()
        await Driver(driver.node).look()
        assert is_whole(driver) or is_absent(driver), step
        driver = Driver(driver.node)
        assert await driver.prepare("a") == ""
        assert is_whole(driver)
        assert await driver.unprepare("a") == ""
        assert is_absent(driver)
        step += 1
    assert step > 2


async def test_calls_about_one_claim_take_turns_at_its_steps(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Two pods that share it, and unprepares; other claims do not wait."""
    del autojump_clock
    node = quick_node
    node.source.store(claim("a", result("npu-2")), claim("c", result("npu-3")))
    driver = Driver(node, Patience())
    for marker in driver.steps:
        marker.seconds, marker.busy = 1.0, set()
    done: list[str] = []

    async def call(name: str, act: Callable[[str], Awaitable[str]], uid: str = "a") -> None:
        assert await act(uid) == ""
        done.append(name)

    for _ in range(3):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(call, "prepare", driver.prepare)
                nursery.start_soon(call, "unprepare", driver.unprepare)
            nursery.start_soon(call, "other", driver.prepare, "c")
        assert await driver.unprepare("c") == ""
        assert await driver.unprepare("a") == ""
        assert is_absent(driver)
    assert done.count("other") == 3


async def test_a_look_leaves_a_claim_that_somebody_is_at_alone(
    quick_node: NodeOnDisk,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    """No word of it; one that was given up is finished at the next look."""
    del autojump_clock
    node = quick_node
    node.source.store(claim("a", result("npu-2")))
    driver = Driver(node, Patience())
    for marker in driver.steps:
        marker.busy = set()
    driver.steps[0].seconds = 12.0
    await nursery.start(keep_cdi_files, driver.ledger, node.cdi(), driver.steps)
    with trio.move_on_after(11):
        await driver.prepare("a")
    assert errors_in(caplog) == []
    assert node.record("uid-a")["state"] == "intended"

    driver.steps[0].seconds = 0.0
    await trio.sleep(6)
    assert is_whole(driver)


async def test_a_repair_that_fails_is_said_once_and_tried_on(
    driver: Driver,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    """With the claim and the reason; by then a call that tries on has reported it or given up."""
    del autojump_clock
    await leave(driver, "undoing")
    faults: list[DriverError] = [Busy(-8020, "destroy")] * 12
    driver.steps[1].faults.extend(faults)

    await nursery.start(keep_cdi_files, driver.ledger, driver.node.cdi(), driver.steps)
    await trio.sleep(41)
    assert errors_in(caplog) == []
    await trio.sleep(16)
    assert errors_in(caplog) == ["default/a: destroy returned -8020"]
    await trio.sleep(6)
    assert is_absent(driver)


@pytest.mark.parametrize("names", ["ab", "ba"])
async def test_of_two_claims_of_one_call_the_first_gets_the_device(
    driver: Driver, names: str
) -> None:
    """Before any step is done."""
    answers = await driver.claims.prepare([ref(name) for name in names])
    assert [not answer.error for answer in answers.values()] == [True, False]
    assert marks(driver.node.root) == {f"uid-{names[0]}.make", f"uid-{names[0]}.flag"}
