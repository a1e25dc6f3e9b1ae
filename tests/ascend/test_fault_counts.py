"""How often the watcher counts what a simulated chip tells by events and by its list of codes."""

from __future__ import annotations

import trio

from dev.rig.waiting import HANG_SECONDS
from tests.ascend.test_chip_faults import LINK
from tests.ascend.watching import MINOR, NEVER, TWICE, Watching
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.lab.simulator import Assertion, BoardControl, Severity


async def until_heard(watching: Watching, events: int) -> None:
    """Wait until so many events were told since the start."""
    with trio.fail_after(HANG_SECONDS):
        await watching.heard.wait_until(lambda heard: heard >= events)


async def until_read(watching: Watching, control: BoardControl) -> None:
    """Wait until chip 3 was read after all that was told of it."""
    control.add_fault(3, MINOR, Severity.MINOR)
    await watching.until_health(3, lambda health: any(f.code == MINOR for f in health.faults))
    control.clear_fault(3, MINOR)
    await watching.until_health(3, lambda health: all(f.code != MINOR for f in health.faults))


async def test_short_breaks_of_a_link_separate_no_chip(
    watching: Watching, control: BoardControl
) -> None:
    """Five in a moment: none of them lasted 20 s."""
    watching.interval = NEVER
    await watching.start()
    for times in range(1, 6):
        control.add_fault(3, LINK, Severity.MINOR)
        control.clear_fault(3, LINK)
        await until_heard(watching, 2 * times)
    await until_read(watching, control)
    health = watching.board.value.by_name["npu-3"].health
    assert (health.state, health.faults) == (HealthState.HEALTHY, ())


async def test_an_event_ahead_of_the_list_counts_once(
    watching: Watching, control: BoardControl
) -> None:
    """The chip is looked at again soon, and has the fault once the list has it."""
    watching.interval = NEVER
    await watching.start()
    control.emit_event(3, TWICE, Severity.MAJOR, Assertion.OCCURRENCE)
    await until_heard(watching, 1)
    await until_read(watching, control)
    control.list_fault(3, TWICE, Severity.MAJOR)
    health = await watching.until_state(3, HealthState.UNHEALTHY)
    assert health.level is FaultLevel.RESTART_BUSINESS


async def test_a_list_ahead_of_the_event_counts_once(
    watching: Watching, control: BoardControl
) -> None:
    """Also if the code is off the list again when its event comes."""
    watching.interval = 0.005
    await watching.start()
    control.list_fault(3, TWICE, Severity.MAJOR)
    await watching.until_state(3, HealthState.UNHEALTHY)
    control.unlist_fault(3, TWICE)
    await watching.until_state(3, HealthState.HEALTHY)
    control.emit_event(3, TWICE, Severity.MAJOR, Assertion.OCCURRENCE)
    control.emit_event(3, TWICE, Severity.MAJOR, Assertion.RECOVERY)
    await until_heard(watching, 2)
    await until_read(watching, control)
    assert watching.board.value.by_name["npu-3"].health.state is HealthState.HEALTHY
    control.emit_event(3, TWICE, Severity.MAJOR, Assertion.OCCURRENCE)
    health = await watching.until_state(3, HealthState.UNHEALTHY)
    assert health.level is FaultLevel.MANUALLY_SEPARATE_NPU


async def test_one_off_events_count(watching: Watching, control: BoardControl) -> None:
    """Two a day separate a chip whose table says so, though it lists nothing."""
    watching.interval = NEVER
    await watching.start()
    control.emit_event(3, TWICE, Severity.MAJOR, Assertion.NOTICE)
    await until_heard(watching, 1)
    await until_read(watching, control)
    assert watching.board.value.by_name["npu-3"].health.state is HealthState.HEALTHY
    control.emit_event(3, TWICE, Severity.MAJOR, Assertion.NOTICE)
    health = await watching.until_state(3, HealthState.UNHEALTHY)
    assert health.level is FaultLevel.MANUALLY_SEPARATE_NPU
