from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from dev.rig.waiting import until
from tests.ascend.watching import BUSINESS, MINOR, NEVER, TWICE, Overheard, Watching
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import Assertion as Notice
from trio_npu_dra.ascend.dcmi.types import FaultEvent
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.faults import CARD_DROPPED
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.ascend.subscription import CAPACITY, EVENTS_OF_CODE
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.lab.simulator import Assertion, BoardControl, Severity, SimulatedBoard


@pytest.fixture
def overheard(simulated: SimulatedBoard) -> Overheard:
    """The board's library, which tests can put words into the mouth of."""
    return Overheard.load(simulated.root)


@pytest.fixture
def overhearing(
    nursery: trio.Nursery, worker: DcmiWorker, overheard: Overheard, host: Host
) -> Watching:
    """A watcher of that library."""
    return Watching(nursery, worker, overheard, host)


# --- faults --------------------------------------------------------------------------------------


async def test_a_fault_and_its_end_reach_the_board(
    either_way: Watching, control: BoardControl
) -> None:
    """By events and by polling: the same Boards, each fault with level and the vendor's words."""
    await either_way.start()
    before = either_way.board.value
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    health = await either_way.until_state(3, HealthState.UNHEALTHY)
    assert (health.level, health.faults[0].code) == (FaultLevel.RESTART_BUSINESS, BUSINESS)
    assert health.faults[0].text.startswith("simulated fault")
    control.add_fault(3, MINOR, Severity.MINOR)
    health = await either_way.until_health(3, lambda health: len(health.faults) == 2)
    assert health.level is FaultLevel.RESTART_BUSINESS
    control.clear_fault(3, BUSINESS)
    health = await either_way.until_state(3, HealthState.HEALTHY)
    assert [fault.code for fault in health.faults] == [MINOR]
    control.clear_fault(3, MINOR)
    assert await either_way.until(lambda board: board == before)


async def test_an_event_tells_how_severe_its_fault_is(
    watching: Watching, control: BoardControl
) -> None:
    """Of a code that no table knows; the chip has worse alarms."""
    watching.interval = NEVER
    control.force_health(3, Severity.CRITICAL)
    await watching.start()
    control.add_fault(3, 0x12345678, Severity.MINOR)
    health = await watching.until_health(
        3, lambda health: any(fault.code == 0x12345678 for fault in health.faults)
    )
    assert health.faults[-1].level is FaultLevel.NOT_HANDLE


async def test_faults_from_before_the_start_are_known_at_the_start(
    watching: Watching, control: BoardControl
) -> None:
    """Events tell only what is new: the state at start is read, twice to be sure."""
    control.add_fault(5, BUSINESS, Severity.MAJOR)
    await watching.start()
    assert watching.board.value.by_name["npu-5"].health.state is HealthState.UNKNOWN
    health = await watching.until_state(5, HealthState.UNHEALTHY)
    assert health.level is FaultLevel.RESTART_BUSINESS


async def test_a_recovery_event_ahead_of_the_list_is_followed_up(
    watching: Watching, control: BoardControl
) -> None:
    """The NPU stays unhealthy until its list has lost the code, and does not flap."""
    watching.interval = NEVER
    await watching.start()
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    await watching.until_state(3, HealthState.UNHEALTHY)
    control.emit_event(3, BUSINESS, Severity.MAJOR, Assertion.RECOVERY)
    with trio.fail_after(5):
        await watching.heard.wait_until(lambda heard: heard == 2)
    assert watching.board.value.by_name["npu-3"].health.state is HealthState.UNHEALTHY
    control.restore(3)  # sends no event: only the look a second later can tell
    await watching.until_state(3, HealthState.HEALTHY)


async def test_a_lost_event_is_repaired_by_a_later_look(
    watching: Watching, control: BoardControl
) -> None:
    """Chips are asked now and then although events come."""
    await watching.start()
    control.set_health(3, Severity.CRITICAL)  # sends no event
    health = await watching.until_state(3, HealthState.UNHEALTHY)
    assert health.level is FaultLevel.SEPARATE_NPU
    control.set_health(3, Severity.WARNING)
    await watching.until_state(3, HealthState.HEALTHY)


async def test_a_driver_that_tells_no_faults_is_polled_and_that_is_said_once(
    watching: Watching, control: BoardControl, caplog: pytest.LogCaptureFixture
) -> None:
    """Not permitted, not supported, taken: each has its reason in the status and the log."""
    control.set_return_code("dcmi_subscribe_fault_event", -8020)
    await watching.start()
    assert not watching.status.value.subscribed
    assert "used by another process" in watching.status.value.refusal
    assert caplog.text.count("the Ascend driver does not tell of faults") == 1


async def test_a_driver_that_was_not_ready_to_tell_of_faults_is_asked_again(
    watching: Watching, control: BoardControl
) -> None:
    """A refusal at the start is not for life."""
    watching.interval = 0.002
    control.set_return_code("dcmi_subscribe_fault_event", -8012)
    await watching.start()
    assert watching.status.value.refusal
    control.release("dcmi_subscribe_fault_event")
    with trio.fail_after(5):
        await watching.status.wait_until(lambda status: status.subscribed)
    assert not watching.status.value.refusal


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


async def test_a_board_says_when_the_event_came_that_changed_it(
    watching: Watching, control: BoardControl
) -> None:
    """On the clock by which delays are measured; no event, no time."""
    watching.interval = NEVER
    await watching.start()
    at_start = watching.board.value
    assert at_start.heard_at is None
    control.add_fault(7, MINOR, Severity.MINOR)
    # Chips go in turn: the look at all of them, which the start ends with, is over then.
    await watching.until_health(7, lambda health: bool(health.faults))
    before = time.monotonic()
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    await watching.until_state(3, HealthState.UNHEALTHY)
    heard_at = watching.board.value.heard_at
    assert heard_at is not None
    assert before <= heard_at <= time.monotonic()


async def test_events_that_are_lost_cost_a_look_at_every_chip(
    overheard: Overheard,
    overhearing: Watching,
    control: BoardControl,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """More events than are kept: those that are lost are counted, said, and made up for.

    Of each code the last ones are kept, so that its rule counts them all the same.
    """
    overhearing.interval = NEVER
    await overhearing.start()
    control.add_fault(7, MINOR, Severity.MINOR)
    await overhearing.until_health(7, lambda health: bool(health.faults))  # chips go in turn
    with trio.fail_after(
        20
    ):  # a look may be ahead of the event, which must not come among the others
        await overhearing.heard.wait_until(lambda heard: heard == 1)
    notice = FaultEvent(
        logic_id=2, code=MINOR, severity=None, assertion=Notice.NOTICE, raised_at=0.0
    )
    for _ in range(CAPACITY + EVENTS_OF_CODE + 3):  # without a checkpoint: the watcher is busy
        overheard.handler(notice)
    control.list_fault(4, BUSINESS, Severity.MAJOR)
    for _ in range(2):
        for assertion in (Notice.OCCURRENCE, Notice.RECOVERY):
            overheard.handler(replace(notice, logic_id=5, code=TWICE, assertion=assertion))

    await overhearing.until_state(4, HealthState.UNHEALTHY)
    health = await overhearing.until_state(5, HealthState.UNHEALTHY)

    assert health.level is FaultLevel.MANUALLY_SEPARATE_NPU
    assert overhearing.status.value.lost == 3
    assert overhearing.heard.value == 1 + CAPACITY + EVENTS_OF_CODE + 4
    (line,) = [line for line in caplog.records if "fault events lost" in line.getMessage()]
    assert vars(line)["lost"] == 3


async def test_what_happens_before_the_driver_tells_of_it_is_seen(
    overheard: Overheard, overhearing: Watching, control: BoardControl
) -> None:
    """Between the first look and the subscription nothing sends an event."""
    overhearing.interval = NEVER
    overheard.before_subscription = lambda: control.set_gone(3)
    await overhearing.start()
    health = await overhearing.until_state(3, HealthState.UNHEALTHY)
    assert health.faults[0].code == CARD_DROPPED


async def test_a_chip_separated_by_hand_stays_so_until_it_is_released(
    watching: Watching, control: BoardControl
) -> None:
    """Its faults are over, its verdict is not; a release is told at once."""
    watching.interval = NEVER
    await watching.start()
    for _ in range(2):
        control.add_fault(3, TWICE, Severity.MAJOR)
        await watching.until_state(3, HealthState.UNHEALTHY)
        control.clear_fault(3, TWICE)
        await watching.until_health(
            3, lambda health: health.level is not FaultLevel.RESTART_BUSINESS
        )
    npu = watching.board.value.by_name["npu-3"]
    assert npu.health.level is FaultLevel.MANUALLY_SEPARATE_NPU
    assert watching.faults.release(npu)
    await watching.until_state(3, HealthState.HEALTHY)


async def test_a_release_needs_no_look_to_be_told(
    watching: Watching, control: BoardControl
) -> None:
    """Nor an event: the verdict is taken back in the moment."""
    watching.interval = NEVER
    await watching.start()
    npu = watching.board.value.by_name["npu-3"]
    readings = (HealthSample(codes={TWICE: ""}), HealthSample())
    for reading in (*readings, *readings):
        watching.faults.of(npu).take(reading, time.time())
    control.add_fault(7, MINOR, Severity.MINOR)
    await watching.until_health(7, lambda health: bool(health.faults))  # the last look that is due
    await watching.until_state(3, HealthState.UNHEALTHY)
    assert watching.faults.release(npu)
    await watching.until_state(3, HealthState.HEALTHY)


async def test_what_is_known_of_faults_survives_a_restart(
    watching: Watching, control: BoardControl, tmp_path: Path
) -> None:
    """Since when, and how often; nothing is written while nothing changes."""
    watching.faults = NodeFaults(tmp_path)
    await watching.start()
    control.add_fault(3, TWICE, Severity.MAJOR)
    health = await watching.until_state(3, HealthState.UNHEALTHY)
    file = tmp_path / "faults.json"
    with trio.fail_after(5):
        await until(lambda: file.exists() and watching.faults.is_saved)
    written = file.stat()
    await trio.sleep(0.1)  # several looks
    assert file.stat().st_mtime_ns == written.st_mtime_ns
    npu = watching.board.value.by_name["npu-3"]
    assert NodeFaults(tmp_path).of(npu).health(time.time()).faults == health.faults


async def test_the_last_change_before_a_stop_is_saved(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, control: BoardControl, tmp_path: Path
) -> None:
    """Writes are a second apart, a stop waits for none: an NPU separated just then stays so."""
    async with trio.open_nursery() as nursery:
        watching = Watching(nursery, worker, dcmi, host)
        watching.faults = NodeFaults(tmp_path)
        await watching.start()
        for _ in range(2):
            control.add_fault(3, TWICE, Severity.MAJOR)
            await watching.until_state(3, HealthState.UNHEALTHY)
            control.clear_fault(3, TWICE)
            await watching.until_health(
                3, lambda health: health.level is not FaultLevel.RESTART_BUSINESS
            )
        nursery.cancel_scope.cancel()
    npu = watching.board.value.by_name["npu-3"]
    health = NodeFaults(tmp_path).of(npu).health(time.time())
    assert health.level is FaultLevel.MANUALLY_SEPARATE_NPU


# --- chips that cannot be asked ------------------------------------------------------------------


async def test_a_chip_that_reboots_keeps_its_place(
    watching: Watching, control: BoardControl
) -> None:
    """A chip is unknown while it boots, and the same NPU afterwards."""
    await watching.start()
    before = watching.board.value
    control.set_booting(3)
    await watching.until_state(3, HealthState.UNKNOWN)
    control.restore(3)
    await watching.until(lambda board: board == before)


async def test_a_chip_that_dropped_is_unhealthy_until_it_is_back(
    watching: Watching, control: BoardControl
) -> None:
    """The drop has MindCluster's code and level."""
    await watching.start()
    control.set_gone(3)
    health = await watching.until_state(3, HealthState.UNHEALTHY)
    assert (health.faults[0].code, health.level) == (CARD_DROPPED, FaultLevel.RESTART_NPU)
    control.restore(3)
    await watching.until_state(3, HealthState.HEALTHY)


async def test_a_chip_that_is_back_is_seen_soon_although_no_event_says_so(
    watching: Watching, control: BoardControl
) -> None:
    """One that is gone is asked as often as one that does not answer."""
    watching.interval = 0.45  # twelve of them are more than the test waits
    await watching.start()
    control.set_gone(3)
    control.emit_event(3, CARD_DROPPED, Severity.CRITICAL, Assertion.NOTICE)
    await watching.until_state(3, HealthState.UNHEALTHY)
    control.restore(3)
    await watching.until_state(3, HealthState.HEALTHY)


async def test_a_hung_chip_is_unknown_and_the_others_are_watched(
    watching: Watching, control: BoardControl, hang: Callable[[str, int], None]
) -> None:
    """A call that never returns costs its own chip only."""
    await watching.start()
    hang("dcmi_get_device_health", 3)
    await watching.until_state(3, HealthState.UNKNOWN)
    control.add_fault(4, BUSINESS, Severity.MAJOR)
    await watching.until_state(4, HealthState.UNHEALTHY)
    control.release("dcmi_get_device_health", 3)
    await watching.until_state(3, HealthState.HEALTHY)


async def test_a_hung_network_call_does_not_touch_the_verdict(
    watching: Watching, control: BoardControl, hang: Callable[[str, int], None]
) -> None:
    """Network health has a deadline of its own, and chips stay monitored."""
    hang("dcmi_get_device_network_health", 3)
    await watching.start()
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    health = await watching.until_state(3, HealthState.UNHEALTHY)
    assert not health.unmonitored


async def test_a_roce_port_that_is_down_is_told(watching: Watching, control: BoardControl) -> None:
    """Apart from the chip's faults, and taken back."""
    await watching.start()
    control.set_network_health(3, 3)
    health = await watching.until_health(3, lambda health: bool(health.network))
    assert (health.state, health.network) == (HealthState.HEALTHY, "RoCE port: unreachable (3)")
    control.set_network_health(3, 0)
    await watching.until_health(3, lambda health: not health.network)


async def test_a_roce_port_that_was_down_stays_so_while_it_cannot_be_asked(
    watching: Watching, control: BoardControl
) -> None:
    """What fails to be read is no recovery."""
    await watching.start()
    control.set_network_health(3, 3)
    before = await watching.until_health(3, lambda health: bool(health.network))
    control.set_return_code("dcmi_get_device_network_health", -8005, 3)
    control.set_network_health(5, 3)
    await watching.until_health(5, lambda health: bool(health.network))
    control.set_network_health(5, 0)  # ports are asked in turn: that of 3 was asked before
    await watching.until_health(5, lambda health: not health.network)
    assert watching.board.value.by_name["npu-3"].health.network == before.network
