"""What the watcher makes of events, of readings, and of what it remembers.

Sequences of all that can happen are in test_watcher_sequences.py, and times in test_watch_pace.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.ascend.pacing import Paced
from tests.ascend.unhealthy_chip import separate
from tests.ascend.watching import BUSINESS, MINOR, NEVER, Watching
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import Assertion, FaultEvent
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.faults import CARD_DROPPED
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.ascend.subscription import CAPACITY
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.lab.simulator import BoardControl, Severity


@pytest.mark.parametrize("has_events", [True, False], ids=["events", "polling"])
async def test_a_fault_and_its_end_reach_the_board(
    watching: Watching, control: BoardControl, *, has_events: bool
) -> None:
    """By events and by polling: the same Boards, each fault with level and the vendor's message."""
    if has_events:
        watching.interval = NEVER
    else:
        control.set_return_code("dcmi_subscribe_fault_event", -8255)
    await watching.start()
    before = watching.board.value
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    health = await watching.until_state(3, HealthState.UNHEALTHY)
    assert (health.level, health.faults[0].code) == (FaultLevel.RESTART_BUSINESS, BUSINESS)
    assert health.faults[0].text.startswith("simulated fault")
    control.add_fault(3, MINOR, Severity.MINOR)
    health = await watching.until_health(3, lambda health: len(health.faults) == 2)
    assert health.level is FaultLevel.RESTART_BUSINESS
    control.clear_fault(3, BUSINESS)
    health = await watching.until_state(3, HealthState.HEALTHY)
    assert [fault.code for fault in health.faults] == [MINOR]
    control.clear_fault(3, MINOR)
    assert await watching.until(lambda board: board == before)


async def test_a_driver_that_sends_no_events_is_polled_and_logged_once(
    watching: Watching, control: BoardControl, caplog: pytest.LogCaptureFixture
) -> None:
    """Not permitted, not supported, taken: status and log have the reason."""
    control.set_return_code("dcmi_subscribe_fault_event", -8020)
    await watching.start()
    assert not watching.status.value.subscribed
    assert "used by another process" in watching.status.value.refusal
    assert caplog.text.count("the Ascend driver sends no fault events") == 1


async def test_a_storm_ends_in_the_truth(watching: Watching, control: BoardControl) -> None:
    """More events than looks: the last state of every chip is right."""
    watching.interval = NEVER
    await watching.start()
    for turn in range(200):
        for device in range(8):
            control.add_fault(device, BUSINESS + turn, Severity.MAJOR)
            control.clear_fault(device, BUSINESS + turn)
        await trio.lowlevel.checkpoint()
    for device in range(0, 8, 2):
        control.add_fault(device, MINOR, Severity.MINOR)
    await watching.until(
        lambda board: (
            [len(npu.health.faults) for npu in board.chips] == [1, 0, 1, 0, 1, 0, 1, 0]
            and all(npu.health.level.rank <= FaultLevel.NOT_HANDLE.rank for npu in board.chips)
        )
    )


async def test_events_that_are_lost_cost_a_look_at_every_chip(
    paced: Paced, mock_clock: MockClock, control: BoardControl, caplog: pytest.LogCaptureFixture
) -> None:
    """More events than are kept: the lost ones are counted, logged, and made up for."""
    await paced.start(mock_clock)
    await paced.jump(1)
    notice = FaultEvent(
        logic_id=2, code=MINOR, severity=None, assertion=Assertion.NOTICE, raised_at=0.0
    )
    for _ in range(CAPACITY + 3):  # without a checkpoint: the daemon is busy
        paced.dcmi.handler(notice)
    control.list_fault(4, BUSINESS, Severity.MAJOR)
    for pause in (0.1, 1):  # no event names chip 4: a second reading must agree
        await paced.jump(pause)

    assert paced.codes(4) == [BUSINESS]
    assert paced.watching.status.value.lost == 3
    assert paced.watching.heard.value == CAPACITY
    assert [vars(line)["lost"] for line in caplog.records if "lost" in vars(line)] == [3]


async def test_what_happens_before_the_driver_tells_of_it_is_seen(
    paced: Paced, mock_clock: MockClock, control: BoardControl
) -> None:
    """Between the first look and the subscription nothing sends an event."""
    paced.dcmi.before_subscription = lambda: control.set_gone(3)
    await paced.start(mock_clock)
    for pause in (0.1, 1):
        await paced.jump(pause)
    assert paced.codes(3) == [CARD_DROPPED]


async def test_a_release_is_published_without_a_look(paced: Paced, mock_clock: MockClock) -> None:
    """Nor does it need an event."""
    await paced.start(mock_clock)
    await paced.jump(1)
    npu = paced.board.chips[3]
    separate(paced.faults, npu, paced.faults.now() - 30)
    await paced.tell(7)
    await paced.jump(0.1)
    assert paced.health(3).state is HealthState.UNHEALTHY
    looks = paced.asked("health")[3]
    assert paced.faults.release(npu)
    await paced.settle()
    assert paced.health(3).state is HealthState.HEALTHY
    assert paced.asked("health")[3] == looks


async def test_the_last_change_before_a_stop_is_saved(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, control: BoardControl, tmp_path: Path
) -> None:
    """Writes are a second apart, and a stop waits for none."""
    async with trio.open_nursery() as nursery:
        watching = Watching(nursery, worker, dcmi, host)
        watching.faults = NodeFaults(tmp_path)
        await watching.start()
        control.add_fault(3, MINOR, Severity.MINOR)
        await watching.until_health(3, lambda health: bool(health.faults))
        control.add_fault(3, BUSINESS, Severity.MAJOR)
        await watching.until_state(3, HealthState.UNHEALTHY)
        nursery.cancel_scope.cancel()
    npu = watching.board.value.by_name["npu-3"]
    assert NodeFaults(tmp_path).of(npu).health(time.time()).faults == npu.health.faults
