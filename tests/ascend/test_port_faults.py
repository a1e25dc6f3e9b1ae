"""Ports of a 950 that are down: the codes that follow, which no library lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ascend.unhealthy_chip import npu
from tests.ascend.watching import MINOR, NEVER, Watching
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import Board, Chip, ChipHealth, Fault, FaultLevel
from trio_npu_dra.ascend.port_faults import (
    SETTLE_SECONDS,
    UB_DOWN_ON_ALL,
    UB_DOWN_ON_ONE,
    UB_PORT_DOWN,
    UBOE_ONE_DOWN,
    UBOE_PORT_DOWN,
    UBOE_TWO_DOWN,
    next_ub_change,
    ub_code,
    with_ub_faults,
)
from trio_npu_dra.lab.simulator import BoardControl, Severity, load_profile

on_ub = pytest.mark.parametrize("profile", [load_profile("950-pod-8")])


class Clock:
    """Time that passes when a test says so."""

    now = 1e9

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now


@pytest.fixture
def clock(watching: Watching, tmp_path: Path) -> Clock:
    """The clock of the watched faults."""
    clock = Clock()
    watching.faults = NodeFaults(tmp_path, clock=clock)
    return clock


def pull_ports(control: BoardControl, numbers: Iterable[int]) -> None:
    """Take the UB ports of these chips down."""
    for number in numbers:
        control.add_fault(number, UB_PORT_DOWN, Severity.MINOR)


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
        (UB_DOWN_ON_ONE, FaultLevel.SEPARATE_NPU),
        (UB_PORT_DOWN, FaultLevel.NOT_HANDLE),
    ]
    assert next_ub_change(watching.board.value) is None
    control.clear_fault(3, UB_PORT_DOWN)
    await codes_are(watching, [])


@on_ub
async def test_a_ub_port_evicts_no_pod_before_the_time_that_is_set(
    watching: Watching, clock: Clock, control: BoardControl
) -> None:
    """The derived fault is as old as the port's."""
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
    watching: Watching, clock: Clock, control: BoardControl, tmp_path: Path
) -> None:
    """It is not the chips' fault; nor are the ports that come back last, also after a restart."""
    await watching.start()
    pull_ports(control, range(8))
    await codes_are(watching, range(8), UB_PORT_DOWN, UB_DOWN_ON_ALL)
    assert {chip.health.level for chip in watching.board.value.chips} == {FaultLevel.SUB_HEALTH}
    control.clear_fault(0, UB_PORT_DOWN)
    clock.now += 100 * SETTLE_SECONDS
    await codes_are(watching, range(1, 8), UB_PORT_DOWN, UB_DOWN_ON_ALL)
    watching.faults.save()
    restarted = await watching.restarted(NodeFaults(tmp_path, clock=clock))
    await codes_are(restarted, range(1, 8), UB_PORT_DOWN, UB_DOWN_ON_ALL)


def die(number: int) -> Chip:
    """A healthy one."""
    return replace(npu(f"DIE-{number}"), physical_id=number)


def fallen(*others: Chip) -> Board:
    """Two chips with a UB port down since 1970, and others."""
    down = Fault(code=UB_PORT_DOWN, level=FaultLevel.NOT_HANDLE, rule="fault table", since=0)
    health = ChipHealth(faults=(down,))
    return Board(chips=(*(replace(die(number), health=health) for number in range(2)), *others))


def judged(board: Board, before: int | None = None) -> set[int | None]:
    """The codes that follow for the two chips, after an earlier judgement."""
    known = {chip.name: before for chip in board.chips[:2]}
    after = with_ub_faults(board, known, SETTLE_SECONDS)
    return {ub_code(chip) for chip in after.chips[:2]}


def test_a_chip_that_is_gone_says_nothing_of_the_others_ub_ports() -> None:
    """The ports of all that are there are down."""
    gone = replace(die(2), gone=True)
    assert judged(fallen(gone)) == {UB_DOWN_ON_ALL}
    assert judged(fallen(gone, die(3))) == {UB_DOWN_ON_ONE}
    fallen_too = replace(fallen().chips[0], physical_id=4, gone=True)
    assert judged(fallen(fallen_too, die(3))) == {UB_DOWN_ON_ONE}


def test_no_chip_is_separated_while_another_ones_ub_ports_are_unknown() -> None:
    """An earlier judgement stands; and nothing is due before the other chip is read."""
    silent = replace(die(2), health=ChipHealth(unmonitored="it hangs"))
    assert judged(fallen(silent)) == {None}
    assert next_ub_change(fallen(silent)) is None
    assert next_ub_change(fallen(die(2))) == SETTLE_SECONDS
    assert judged(fallen(silent), UB_DOWN_ON_ONE) == {UB_DOWN_ON_ONE}


@on_ub
async def test_ub_ports_whose_events_are_lost_are_looked_at_before_another_chip_is_separated(
    watching: Watching, control: BoardControl
) -> None:
    """A lost event would end the pods of all others."""
    watching.interval = NEVER
    await watching.start()
    for number in range(8):
        control.add_fault(number, MINOR, Severity.MINOR)
    await codes_are(watching, range(8), MINOR)
    pull_ports(control, range(7))
    control.list_fault(7, UB_PORT_DOWN, Severity.MINOR)
    board = await watching.until(
        lambda board: all(len(chip.health.faults) == 3 for chip in board.chips[:7])
    )
    assert {chip.health.level for chip in board.chips} == {FaultLevel.SUB_HEALTH}


@on_ub
async def test_a_chip_is_no_longer_separated_once_all_have_a_ub_port_down(
    watching: Watching, clock: Clock, control: BoardControl
) -> None:
    """Then it is no chip's own fault."""
    await watching.start()
    pull_ports(control, range(7))
    await codes_are(watching, range(7), UB_PORT_DOWN)
    clock.now += SETTLE_SECONDS
    await codes_are(watching, range(7), UB_PORT_DOWN, UB_DOWN_ON_ONE)
    control.add_fault(7, UB_PORT_DOWN, Severity.MINOR)
    await codes_are(watching, range(8), UB_PORT_DOWN, UB_DOWN_ON_ALL)


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
    """Derived codes are longer than those that libraries list."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take_confirmed(HealthSample(codes={UBOE_TWO_DOWN: "words"}), faults.now())
    before = faults.of(npu()).health(faults.now())
    faults.save()
    again = NodeFaults(tmp_path)
    again.of(npu()).take_confirmed(HealthSample(pending=True), again.now())
    assert again.of(npu()).health(again.now()).faults == before.faults
