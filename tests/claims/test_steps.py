"""A claim with steps is whole or on its way, whatever state it is in and whatever fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from tests.claims.marking import marks
from tests.claims.node import NodeOnDisk, claim, ref, result
from tests.claims.restarted import errors_in
from tests.claims.stepping import (
    READY,
    STATES,
    Driver,
    change,
    is_absent,
    is_whole,
    leave,
)
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.claims.transitions import TRANSITIONS, Action, Goal, Situation
from trio_npu_dra.ascend.dcmi.errors import Busy
from trio_npu_dra.kit.base.errors import ClaimUnavailable, HoldGone, StorageError


def test_the_table_has_an_action_for_each_situation_and_goal() -> None:
    """Only a prepare can find a hold to be for another allocation."""
    for situation in Situation:
        goals = set(Goal) if situation is not Situation.OUTDATED else {Goal.PREPARE}
        assert TRANSITIONS[situation].keys() == goals
        assert TRANSITIONS[situation][Goal.PREPARE] is not Action.NOTHING


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("state", STATES)
async def test_each_goal_is_reached_from_each_state(
    driver: Driver, state: str, goal: Goal, is_restarted: bool
) -> None:
    """By the process that left it so, or by the next; a prepared claim is no suspected orphan."""
    await leave(driver, state)
    if state != "absent":
        await change(driver, lambda entry: replace(entry, doubted=True))
    if is_restarted:
        driver = Driver(driver.node)

    if goal is Goal.PREPARE:
        assert await driver.prepare("a") == ""
        assert is_whole(driver)
        assert "doubted" not in driver.node.record("uid-a")
        given = driver.node.record("uid-a")["allocation"][0]["device"]
        assert given == ("npu-5" if state == "outdated" else "npu-2")
    elif goal is Goal.UNPREPARE:
        assert await driver.unprepare("a") == ""
        assert is_absent(driver)
    else:
        await driver.look()
        kept = state.startswith("intended") or state in {"outdated", *READY}
        assert is_whole(driver) if kept else is_absent(driver)


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
async def test_a_step_that_fails_keeps_the_hold_and_is_done_again(
    driver: Driver, which: int
) -> None:
    """No container can start meanwhile, and nobody else gets the NPU."""
    driver.steps[which].faults.append(StorageError("broken"))

    assert await driver.prepare("a") == "broken"

    assert (driver.node.record_uids(), driver.node.cdi_uids()) == ({"uid-a"}, set())
    assert "held by claim default/a" in await driver.prepare("b")
    assert await driver.prepare("a") == ""
    assert is_whole(driver)
    assert [step.times for step in driver.steps] == ([2, 1] if which == 0 else [1, 2])


@pytest.mark.parametrize("which", [0, 1])
async def test_a_step_that_cannot_be_undone_keeps_the_hold(driver: Driver, which: int) -> None:
    """The steps before it are not touched; no container can start; the next call goes on."""
    await driver.prepare("a")
    driver.steps[which].faults.append(Busy(-8020, "dcmi_set_destroy_vdevice"))

    assert "returned -8020" in await driver.unprepare("a")

    assert (driver.node.record_uids(), driver.node.cdi_uids()) == ({"uid-a"}, set())
    assert ("uid-a.make" in marks(driver.node.root)) == (which == 1)
    assert "held by claim default/a" in await driver.prepare("b")
    assert await driver.unprepare("a") == ""
    assert is_absent(driver)


async def test_what_is_busy_is_tried_again_within_the_call(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """In both directions, for as long as the kubelet waits."""
    del autojump_clock
    quick_node.source.store(claim("a", result("npu-2")))
    driver = Driver(quick_node, Patience())
    driver.steps[1].faults.extend([Busy(-8020, "make")] * 5)
    assert await driver.prepare("a") == ""
    assert is_whole(driver)

    driver.steps[0].faults.extend([Busy(-8020, "destroy")] * 5)
    assert await driver.unprepare("a") == ""
    assert is_absent(driver)

    driver.steps[0].faults.extend([Busy(-8020, "make")] * 1000)
    since = trio.current_time()
    assert "returned -8020" in await driver.prepare("a")
    assert 35 < trio.current_time() - since < 40


async def test_a_replaced_allocation_undoes_the_old_steps_before_the_new_ones(
    driver: Driver,
) -> None:
    """And onto a device that another holds the claim keeps nothing."""
    await driver.prepare("a")
    driver.steps[0].faults.append(Busy(-8020, "destroy"))
    driver.node.source.store(claim("a", result("npu-5")))
    assert "returned -8020" in await driver.prepare("a")
    assert driver.node.record("uid-a")["state"] == "undoing"
    assert driver.node.record("uid-a")["allocation"][0]["device"] == "npu-2"

    assert await driver.prepare("a") == ""
    assert is_whole(driver)

    await driver.prepare("c")
    driver.node.source.store(claim("a", result("npu-3")))
    assert "held by claim default/c" in await driver.prepare("a")
    assert driver.node.record_uids() == driver.node.cdi_uids() == {"uid-c"}
    assert marks(driver.node.root) == {"uid-c.make", "uid-c.flag"}


async def test_an_answer_from_an_old_record_undoes_no_newer_allocation(driver: Driver) -> None:
    """A slow call may have read the claim when it was ready for devices that it has no more."""
    await driver.prepare("a")
    planner = driver.claims._planner
    old = await planner.read(ref("a"))
    await driver.unprepare("a")
    driver.node.source.store(claim("a", result("npu-5")))
    await driver.prepare("a")

    plans = await driver.ledger.within(lambda: planner.plan([old]))

    assert isinstance(plans["uid-a"], HoldGone)
    assert is_whole(driver)


async def test_claims_that_change_places_have_their_steps_undone_first(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Each waits until the other has let go."""
    del autojump_clock
    node = quick_node
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    driver = Driver(node, Patience())
    await driver.claims.prepare([ref("a"), ref("b")])
    node.source.store(claim("a", result("npu-3")), claim("b", result("npu-2")))

    answers = await driver.claims.prepare([ref("a"), ref("b")])

    assert [answer.error for answer in answers.values()] == ["", ""]
    assert [answer.devices[0].device for answer in answers.values()] == ["npu-3", "npu-2"]


async def test_no_container_starts_while_what_is_lost_is_done_again(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """The NPU stays the claim's; each look tries again, and says so once."""
    await leave(driver, "ready, the first step lost")
    driver.steps[0].faults.extend([StorageError("no room")])

    await driver.look()

    assert driver.node.cdi_uids() == set()
    assert (driver.node.record("uid-a")["state"], driver.node.record("uid-a")["steps"]) == (
        "intended",
        ["make"],
    )
    assert "held by claim default/a" in await driver.prepare("b")
    await driver.look()
    assert is_whole(driver)
    lost = [line for line in caplog.messages if "is lost and is done again" in line]
    assert len(lost) == 1


async def test_an_error_that_may_pass_is_said_once_no_call_can_say_it(
    driver: Driver, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet's call lasts 45 s, and tells the pod's owner itself."""
    del autojump_clock
    await leave(driver, "intended, half done")
    driver.steps[1].faults.extend([ClaimUnavailable("away")] * 4)
    for seconds, said in ((44, []), (2, []), (5, ["default/a: away"]), (5, ["default/a: away"])):
        await driver.look()
        assert errors_in(caplog) == said
        await trio.sleep(seconds)
