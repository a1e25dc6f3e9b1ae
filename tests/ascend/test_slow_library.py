"""A library that takes long: late answers are used; slowness is no fault; announced faults are."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from trio.testing import MockClock

from tests.ascend.conftest import Card
from tests.ascend.pacing import NODE, Paced
from tests.ascend.watching import BUSINESS, MINOR, TWICE
from trio_npu_dra.ascend.chip_faults import UNREAD_SECONDS
from trio_npu_dra.ascend.dcmi.types import Assertion
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.lab.simulator import BoardControl, Severity, SimulatedBoard, load_profile

OTHERS = [("health", card) for card in range(8) if card != 5]
"""Each holds up what is behind it, as long as its deadline lets it."""


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


# --- an announced fault is published at once, whatever other calls do -----------------------------


async def test_a_fault_is_published_while_calls_about_other_chips_take_seconds(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """A reading of its chip is behind one such call at least."""
    control.set_return_code("dcmi_subscribe_fault_event", -8255)  # each chip in each interval
    await paced.start(mock_clock)
    await paced.jump_into(10, *OTHERS, "network")
    control.list_fault(5, BUSINESS, Severity.MAJOR)
    await paced.announce(5, BUSINESS)
    await paced.jump(UNREAD_SECONDS)
    assert paced.codes(5) == [BUSINESS]
    assert paced.health(5).level is FaultLevel.RESTART_BUSINESS
    await paced.let_go()
    assert paced.health(5).faults[0].text.startswith("simulated fault")


async def test_a_fault_is_published_while_the_library_starts(
    paced: Paced, mock_clock: MockClock, control: BoardControl, card: Card
) -> None:
    """For a minute it may be asked nothing. Faults of all chips that come at once are one Board."""
    await paced.start(mock_clock)
    await paced.jump(1)
    card.pull()
    await paced.jump_into(10, "init")
    others = [number for number in range(8) if number != 5]
    for number in others:
        await paced.announce(number, BUSINESS)
    assert {chip.health.faults for chip in paced.board.chips} == {()}
    await paced.jump(UNREAD_SECONDS)
    board = paced.board
    assert [paced.codes(number) for number in others] == [[BUSINESS]] * 7
    assert board.heard_at == 5.0
    await paced.jump(15)
    assert paced.board is board
    for number in others:
        control.list_fault(number, BUSINESS, Severity.MAJOR)
    await paced.let_go()
    assert paced.board.by_name["npu-5"].gone
    assert [paced.codes(number) for number in others] == [[BUSINESS]] * 7


async def test_a_fault_of_a_chip_that_is_just_being_listed_is_published(
    paced: Paced, mock_clock: MockClock, control: BoardControl, card: Card
) -> None:
    """Its event comes after the chip was read, with the number of another one until then."""
    await paced.start(mock_clock)
    card.pull()
    await paced.jump(10)
    card.put_back()
    await paced.jump_into(10, ("health", 7))
    control.list_fault(5, BUSINESS, Severity.MAJOR)
    await paced.announce(5, BUSINESS)
    await paced.jump(UNREAD_SECONDS)
    assert paced.board.by_name["npu-5"].gone
    assert paced.codes(6) == []
    await paced.let_go()
    await paced.jump(0.1)
    assert [paced.codes(number) for number in range(8)] == [[]] * 5 + [[BUSINESS], [], []]


async def test_a_fault_that_was_announced_is_over_if_no_reading_lists_it(
    paced: Paced, mock_clock: MockClock
) -> None:
    """An event alone counts only until its chip is read."""
    await paced.start(mock_clock)
    await paced.jump_into(120, *OTHERS)
    await paced.announce(5, MINOR)
    await paced.jump(UNREAD_SECONDS)
    assert paced.codes(5) == [MINOR]
    await paced.let_go()
    assert paced.codes(5) == []


async def test_an_event_that_counted_without_a_reading_counts_once(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """The reading that lists its fault is of the same occurrence."""
    await paced.start(mock_clock)
    for times in (1, 2):
        await paced.jump_into(120, *OTHERS)
        control.list_fault(5, TWICE, Severity.MAJOR)
        await paced.announce(5, TWICE)
        await paced.jump(UNREAD_SECONDS)
        await paced.let_go()
        is_separated = paced.health(5).level is FaultLevel.MANUALLY_SEPARATE_NPU
        assert (paced.codes(5), is_separated) == ([TWICE], times == 2)
        control.unlist_fault(5, TWICE)
        await paced.tell(5, TWICE, Assertion.RECOVERY)
        await paced.jump(120)


async def test_an_event_in_the_midst_of_a_reading_is_answered_by_the_next_one(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """Its time is that of the Board that it changes."""
    await paced.start(mock_clock)
    await paced.jump_into(120, ("health", 5))
    await paced.jump(0.1)
    await paced.announce(5, BUSINESS)
    await paced.let_go()
    assert paced.codes(5) == []
    control.list_fault(5, BUSINESS, Severity.MAJOR)
    await paced.jump(UNREAD_SECONDS)
    assert (paced.codes(5), paced.board.heard_at) == ([BUSINESS], 5.0)


@pytest.mark.parametrize("profile", [load_profile("950-pod-8")])
async def test_a_fault_stays_while_a_list_gives_its_chip_another_number(
    paced: Paced, mock_clock: MockClock, control: BoardControl, simulated: SimulatedBoard
) -> None:
    """A reading that waited for `dcmi_init` is of another chip, or of none."""
    await paced.start(mock_clock)
    control.list_fault(4, BUSINESS, Severity.MAJOR)
    await paced.announce(4, BUSINESS)
    await paced.jump(1)
    assert paced.codes(4) == [BUSINESS]
    (simulated.dev_root / "davinci2").rename(simulated.root / "davinci2")
    await paced.jump_into(10, "init")
    await paced.tell(4)
    await paced.jump(1)
    await paced.let_go()
    assert paced.board.by_name["npu-2"].unlisted
    assert paced.codes(4) == [BUSINESS]
