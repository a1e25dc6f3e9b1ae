"""How often the watcher counts what a simulated chip tells by events and by its list of codes."""

from __future__ import annotations

import trio

from tests.npu.test_chip_faults import LINK
from tests.npu.watching import MINOR, NEVER, Watching
from trio_npu_dra.npu.model import HealthState
from trio_npu_dra.simulator import BoardControl, Severity


async def until_heard(watching: Watching, events: int) -> None:
    """Wait until so many events were told since the start."""
    with trio.fail_after(5):
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
