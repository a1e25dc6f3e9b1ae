"""Nodes with Ascend 950, from the library's answers to what is published and handed out."""

from __future__ import annotations

import pytest

from dev.rig.looking import Look
from tests.ascend.watching import BUSINESS, NEVER, Watching
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.occupancy import is_any_occupied
from trio_npu_dra.ascend.telemetry import TelemetryReader
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.lab.simulator import BoardControl, Severity, load_profile

ON_PCI, ON_UB = load_profile("950-card-4"), load_profile("950-pod-8")

CPUS = "dcmiv2_get_affinity_cpu_info_by_dev_id"

both = pytest.mark.parametrize("profile", [ON_PCI, ON_UB], ids=lambda profile: profile.name)
on_ub = pytest.mark.parametrize("profile", [ON_UB])


@on_ub
async def test_a_silent_chip_keeps_its_facts(
    look: Look, board: Board, dcmi: Dcmi, control: BoardControl
) -> None:
    """It is listed by a gap, so it is not gone; its neighbours keep their numbers."""
    control.set_silent(2)
    dcmi.init()
    found = await look(board)
    assert found.unanswered == ("1 of 8 cards do not answer",)
    assert found.chips == board.chips


@on_ub
async def test_a_device_node_without_a_chip_is_one_that_boots(
    look: Look, board: Board, host: Host
) -> None:
    """There is no PCI bus to tell of it."""
    assert board.gaps == ()
    (host.dev_root / "davinci8").symlink_to("/dev/null")
    assert (await look(board)).gaps == ("accelerator /dev/davinci8 is not listed",)


@on_ub
async def test_a_chip_that_left_is_gone_and_others_close_up(
    look: Look, board: Board, dcmi: Dcmi, control: BoardControl
) -> None:
    """Those after it have other dev ids, and are the same chips."""
    control.set_gone(2)
    dcmi.init()
    found = await look(await look(board))
    assert [chip.name for chip in found.chips if chip.gone] == ["npu-2"]
    there = [chip for chip in found.chips if not chip.gone]
    assert [chip.logic_id for chip in there] == list(range(7))
    assert [chip.uuid for chip in found.chips] == [chip.uuid for chip in board.chips]


@on_ub
async def test_the_numa_node_of_a_950_without_a_pci_address(
    look: Look, board: Board, control: BoardControl
) -> None:
    """It is that of the nearest CPUs; an answer that fails changes nothing."""
    assert [chip.numa_node for chip in board.chips] == [0, 0, 0, 0, 1, 1, 1, 1]
    control.set_return_code(CPUS, -8005)
    found = await look(board)
    assert found.chips == board.chips
    assert all("NUMA node" in line for line in found.unanswered)
    assert len(found.unanswered) == 8
    control.set_return_code(CPUS, -8255)
    found = await look(board)
    assert {chip.numa_node for chip in found.chips} == {None}
    assert found.unanswered == ()


@on_ub
async def test_cpus_of_no_numa_node_tell_none(look: Look, host: Host, dcmi: Dcmi) -> None:
    """The nearest CPUs may be no node that the kernel knows; a known node stays."""
    cpus = host.sysfs_root / "devices/system/node/node1/cpulist"
    before = cpus.read_text()
    cpus.write_text("48-94\n")
    dcmi.init()
    found = await look()
    assert [chip.numa_node for chip in found.chips] == [0, 0, 0, 0, None, None, None, None]
    cpus.write_text(before)
    found = await look(found)
    assert [chip.numa_node for chip in found.chips] == [0, 0, 0, 0, 1, 1, 1, 1]
    cpus.write_text("48-94\n")
    assert (await look(found)).chips == found.chips


@pytest.fixture(params=["events", "polling"])
def watched(request: pytest.FixtureRequest, watching: Watching, control: BoardControl) -> Watching:
    """A watcher that has only events, and one that can only poll."""
    if request.param == "events":
        watching.interval = NEVER
    else:
        control.set_return_code("dcmiv2_subscribe_fault_event", -8255)
    return watching


@both
async def test_a_fault_is_seen_and_its_end(watched: Watching, control: BoardControl) -> None:
    """By the events or the codes of the second generation."""
    await watched.start()
    control.add_fault(1, BUSINESS, Severity.MAJOR)
    unhealthy = await watched.until_state(1, HealthState.UNHEALTHY)
    assert [fault.code for fault in unhealthy.faults] == [BUSINESS]
    assert "simulated fault" in unhealthy.message
    control.clear_fault(1, BUSINESS)
    await watched.until_state(1, HealthState.HEALTHY)


@both
async def test_a_950_that_boots_is_not_judged(watching: Watching, control: BoardControl) -> None:
    """Its health cannot be read, as with the first generation."""
    await watching.start()
    control.set_booting(1, answers=["dcmiv2_get_device_boot_status"])
    health = await watching.until_state(1, HealthState.UNKNOWN)
    assert "in its BIOS" in health.unmonitored


@on_ub
async def test_the_network_of_a_950_is_watched(watching: Watching, control: BoardControl) -> None:
    """A server has ports, a card has none."""
    await watching.start()
    control.set_network_health(3, 3)
    health = await watching.until_health(3, lambda health: bool(health.network))
    assert "unreachable" in health.network


@both
async def test_a_950_is_measured_and_its_processes_are_known(
    worker: DcmiWorker, dcmi: Dcmi, board: Board, control: BoardControl
) -> None:
    """In base units, by calls of the second generation."""
    npu = board.chips[1]
    control.set_temperature(1, 51)
    control.set_power(1, 312.5)
    control.set_utilization(1, 2, 40)
    control.set_hbm_used(1, 4096)
    measured = await TelemetryReader(worker, dcmi).read(npu)
    assert (measured.temperature_celsius, measured.power_watts) == (51, 312.5)
    assert (measured.ai_core_ratio, measured.memory_used_bytes) == (0.4, 4 * 2**30)
    chips = Observable(board)
    assert not await is_any_occupied(worker, dcmi, chips, [npu.device_node])
    control.set_processes(1, [(4711, 1)])
    assert await is_any_occupied(worker, dcmi, chips, [npu.device_node])
