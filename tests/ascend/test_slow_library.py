"""A library that takes long: late answers are used, and slowness is no fault."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from trio.testing import MockClock

from tests.ascend.pacing import NODE, Paced
from tests.ascend.watching import BUSINESS, MINOR
from trio_npu_dra.ascend.dcmi.types import Assertion
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.lab.simulator import BoardControl, Severity


@pytest.fixture
async def worker() -> AsyncIterator[DcmiWorker]:
    """The thread for DCMI calls."""
    async with open_worker() as worker:
        yield worker


async def test_a_late_answer_is_used(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """Until then the known health stands, and other chips are watched."""
    await paced.start(mock_clock)
    control.list_fault(3, BUSINESS, Severity.MAJOR)
    await paced.jump_into(120, ("health", 3))
    await paced.jump(3)
    assert paced.health(3).state is HealthState.HEALTHY
    control.list_fault(4, BUSINESS, Severity.MAJOR)
    await paced.tell(4, BUSINESS, Assertion.OCCURRENCE)
    await paced.jump(1)
    assert paced.codes(4) == [BUSINESS]
    await paced.let_go()
    await paced.jump(1)  # without an event a second reading must agree
    assert (paced.codes(3), paced.health(3).unmonitored) == ([BUSINESS], "")


async def test_calls_that_are_always_slow_make_no_chip_unknown(
    paced: Paced,
    mock_clock: MockClock,
    control: BoardControl,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor do they fill the log."""
    caplog.set_level(logging.INFO)
    control.set_return_code("dcmi_subscribe_fault_event", -8255)
    await paced.start(mock_clock)
    states = set()
    for _ in range(5):
        await paced.jump_into(10, ("health", 3))
        await paced.jump(3)
        states |= {chip.health.state for chip in paced.board.chips}
        await paced.let_go()
    assert states == {HealthState.HEALTHY}
    slow = [line for line in caplog.records if vars(line).get("device") == "card 3 device 0"]
    assert [line.getMessage() for line in slow] == [
        "DCMI call written off",
        "DCMI call came back after its deadline",
    ]


async def test_a_call_that_does_not_return_for_long_makes_its_chip_unknown(
    paced: Paced, mock_clock: MockClock
) -> None:
    """Until it does return."""
    await paced.start(mock_clock)
    await paced.jump_into(120, ("health", 3))
    await paced.jump(2)
    assert paced.health(3).state is HealthState.HEALTHY
    await paced.jump(10)
    unknown = [chip.name for chip in paced.board.chips if chip.health.unmonitored]
    assert unknown == ["npu-3"]
    assert "has not returned" in paced.health(3).unmonitored
    await paced.let_go()
    assert paced.health(3).state is HealthState.HEALTHY


async def test_chips_of_which_no_call_returns_are_unknown_soon(
    paced: Paced, mock_clock: MockClock
) -> None:
    """All in the time of one, although they are asked one after another."""
    await paced.start(mock_clock)
    await paced.jump_into(10, "health", "network")
    for _ in range(30):
        await paced.jump(1)
    assert {chip.health.state for chip in paced.board.chips} == {HealthState.UNKNOWN}
    await paced.let_go()
    await paced.jump(10)
    assert {chip.health.state for chip in paced.board.chips} == {HealthState.HEALTHY}


async def test_a_late_answer_of_a_port_is_used(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """Its call has a second."""
    await paced.start(mock_clock)
    control.set_network_health(3, 3)
    await paced.jump_into(10, ("network", 3))
    await paced.jump(2)
    health = paced.health(3)
    assert (health.network, health.unmonitored) == ("", "")
    await paced.let_go()
    assert paced.health(3).network.startswith("RoCE port")


async def test_a_chip_that_dropped_is_not_back_by_a_late_answer(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """The answer is of before."""
    await paced.start(mock_clock)
    await paced.jump_into(120, ("health", 3))
    await paced.jump(2)
    control.set_gone(3)
    await paced.let_go()
    await paced.jump(1)
    assert paced.health(3).state is HealthState.UNHEALTHY


async def test_a_subscription_that_takes_long_is_one(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """Until it answers chips are read in turn; a second subscription would be refused."""
    paced.begin(mock_clock)
    await paced.jump_into(0, "subscribe")
    await paced.jump(6)
    assert not paced.watching.status.value.subscribed
    assert paced.watching.status.value.refusal
    for _ in range(70):  # it is asked for again, in vain
        await paced.jump(10)
    await paced.let_go()
    assert paced.watching.status.value == WatchStatus(subscribed=True)
    for _ in range(70):
        await paced.jump(10)
    assert paced.dcmi.asked["subscribe", NODE] == 1
    control.list_fault(3, MINOR, Severity.MINOR)
    await paced.tell(3)
    await paced.jump(1)
    assert paced.codes(3) == [MINOR]
