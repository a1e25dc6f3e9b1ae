"""Ports of a 950 that are down: what follows from it has codes that no library lists."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tests.npu.sick_chip import npu
from tests.npu.watching import Watching
from trio_npu_dra.npu.fault_memory import NodeFaults
from trio_npu_dra.npu.model import FaultLevel
from trio_npu_dra.npu.port_faults import (
    SETTLE_SECONDS,
    UB_OF_ALL_CHIPS,
    UB_OF_ONE_CHIP,
    UB_PORT_DOWN,
    UBOE_ONE_DOWN,
    UBOE_PORT_DOWN,
    UBOE_TWO_DOWN,
    next_ub_change,
)
from trio_npu_dra.npu.reading import Reading
from trio_npu_dra.simulator import BoardControl, Severity, load_profile

on_ub = pytest.mark.parametrize("profile", [load_profile("950-pod-8")])


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now


@pytest.fixture
def clock(watching: Watching) -> Clock:
    """The clock of the watched faults."""
    clock = Clock()
    watching.faults = NodeFaults(None, clock=clock)
    return clock


async def codes_are(watching: Watching, numbers: Collection[int], *codes: int) -> None:
    """Wait until these chips have just these faults, and all others none."""
    await watching.until(
        lambda board: all(
            {fault.code for fault in chip.health.faults}
            == (set(codes) if chip.physical_id in numbers else set())
            for chip in board.chips
        )
    )


@on_ub
async def test_a_ub_port_of_one_chip_that_stays_down_separates_the_chip(
    watching: Watching, clock: Clock, control: BoardControl
) -> None:
    """At first nothing has to be done: other chips may follow."""
    await watching.start()
    control.add_fault(3, UB_PORT_DOWN, Severity.MINOR)
    await codes_are(watching, [3], UB_PORT_DOWN)
    assert next_ub_change(watching.board.value) == clock.now + SETTLE_SECONDS
    clock.now += SETTLE_SECONDS
    health = await watching.until_health(3, lambda health: len(health.faults) == 2)
    assert [(fault.code, fault.level) for fault in health.faults] == [
        (UB_OF_ONE_CHIP, FaultLevel.SEPARATE_NPU),
        (UB_PORT_DOWN, FaultLevel.NOT_HANDLE),
    ]
    assert next_ub_change(watching.board.value) is None
    control.clear_fault(3, UB_PORT_DOWN)
    await codes_are(watching, [])


@on_ub
async def test_a_ub_port_evicts_nobody_before_it_was_down_for_as_long_as_is_set(
    watching: Watching, clock: Clock, control: BoardControl
) -> None:
    """What follows from it is no older than it is."""
    watching.faults = NodeFaults(None, clock=clock, settle_seconds=30)
    await watching.start()
    control.add_fault(3, UB_PORT_DOWN, Severity.MINOR)
    await codes_are(watching, [3], UB_PORT_DOWN)
    clock.now += SETTLE_SECONDS
    health = await watching.until_health(3, lambda health: len(health.faults) == 2)
    assert not any(fault.is_settled for fault in health.faults)
    clock.now += 30 - SETTLE_SECONDS
    await watching.until_health(3, lambda health: all(one.is_settled for one in health.faults))


@on_ub
async def test_ub_ports_of_all_chips_separate_none_of_them(
    watching: Watching, clock: Clock, control: BoardControl
) -> None:
    """It is not the chips' fault; nor is that of those whose ports are the last to come back."""
    await watching.start()
    for number in range(8):
        control.add_fault(number, UB_PORT_DOWN, Severity.MINOR)
    await codes_are(watching, range(8), UB_PORT_DOWN, UB_OF_ALL_CHIPS)
    assert {chip.health.level for chip in watching.board.value.chips} == {FaultLevel.SUB_HEALTH}
    control.clear_fault(0, UB_PORT_DOWN)
    clock.now += 100 * SETTLE_SECONDS
    await codes_are(watching, range(1, 8), UB_PORT_DOWN, UB_OF_ALL_CHIPS)


@on_ub
async def test_a_chip_is_no_longer_separated_once_all_have_a_ub_port_down(
    watching: Watching, clock: Clock, control: BoardControl
) -> None:
    """The last one makes it everybody's trouble."""
    await watching.start()
    for number in range(7):
        control.add_fault(number, UB_PORT_DOWN, Severity.MINOR)
    await codes_are(watching, range(7), UB_PORT_DOWN)
    clock.now += SETTLE_SECONDS
    await codes_are(watching, range(7), UB_PORT_DOWN, UB_OF_ONE_CHIP)
    control.add_fault(7, UB_PORT_DOWN, Severity.MINOR)
    await codes_are(watching, range(8), UB_PORT_DOWN, UB_OF_ALL_CHIPS)


@on_ub
async def test_as_many_uboe_ports_are_down_as_the_code_is_listed(
    watching: Watching, control: BoardControl
) -> None:
    """One leaves the chip in service, two keep new work away."""
    await watching.start()
    for derived, level in (
        (UBOE_ONE_DOWN, FaultLevel.SUB_HEALTH),
        (UBOE_TWO_DOWN, FaultLevel.PRE_SEPARATE_NPU),
    ):
        control.add_fault(3, UBOE_PORT_DOWN, Severity.MINOR)
        await codes_are(watching, [3], UBOE_PORT_DOWN, derived)
        assert watching.board.value.by_name["npu-3"].health.level is level
    control.clear_fault(3, UBOE_PORT_DOWN)
    await codes_are(watching, [3], UBOE_PORT_DOWN, UBOE_ONE_DOWN)
    control.clear_fault(3, UBOE_PORT_DOWN)
    await codes_are(watching, [])


def test_codes_of_nine_digits_are_remembered_over_a_restart(tmp_path: Path) -> None:
    """Those of the ports are longer than those that libraries list."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take(Reading(codes={UBOE_TWO_DOWN: "words"}), faults.now())
    before = faults.of(npu()).health(faults.now())
    faults.save()
    again = NodeFaults(tmp_path)
    again.of(npu()).take(Reading(pending=True), again.now())
    assert again.of(npu()).health(again.now()).faults == before.faults
