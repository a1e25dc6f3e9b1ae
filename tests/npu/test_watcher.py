from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.fault_events import FaultEvent
from trio_npu_dra.npu.fault_memory import NodeFaults
from trio_npu_dra.npu.faults import CARD_DROPPED
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.listing import Listing
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, FaultLevel, HealthState, NpuHealth
from trio_npu_dra.npu.watcher import WatchStatus, read_board, watch_board
from trio_npu_dra.observable import Observable
from trio_npu_dra.simulator import Assertion, BoardControl, Severity, SimulatedBoard

Start = Callable[[], Awaitable[None]]

BUSINESS = 0x81B38002  # RestartBusiness
MINOR = 0x80CD8003  # NotHandle
TWICE = 0x80E01801  # RestartBusiness, twice a day: separated by hand

NEVER = 3600.0
"""As the interval: what is seen has come by events."""


class Watching:
    """A watcher of the board, its surroundings, and what it keeps."""

    def __init__(self, nursery: trio.Nursery, worker: DcmiWorker, dcmi: Dcmi, host: Host) -> None:
        self.board = Observable(EMPTY_BOARD)
        self.status = Observable(WatchStatus())
        self.heard: Observable[tuple[FaultEvent, ...]] = Observable(())
        self.faults = NodeFaults(None)
        self.interval = 0.02
        self._nursery = nursery
        self._hardware = (worker, dcmi, host)

    async def start(self) -> None:
        """Start it; it ends with the test."""
        run = partial(
            watch_board,
            *self._hardware,
            board=self.board,
            faults=self.faults,
            status=self.status,
            interval_seconds=self.interval,
            told=lambda event: self.heard.set((*self.heard.value, event)),
        )
        with trio.fail_after(5):
            await self._nursery.start(run)
            await self.status.wait_until(lambda status: status != WatchStatus())

    async def until(self, condition: Callable[[Board], bool]) -> Board:
        """The first Board that fulfils *condition*."""
        with trio.fail_after(5):
            return await self.board.wait_until(condition)

    async def until_health(self, number: int, condition: Callable[[NpuHealth], bool]) -> NpuHealth:
        """The first health of an NPU that fulfils *condition*."""
        name = f"npu-{number}"
        board = await self.until(
            lambda board: name in board.by_name and condition(board.by_name[name].health)
        )
        return board.by_name[name].health

    async def until_state(self, number: int, state: HealthState) -> NpuHealth:
        """The first health of an NPU with that verdict."""
        return await self.until_health(number, lambda health: health.state is state)


@pytest.fixture
def watching(nursery: trio.Nursery, worker: DcmiWorker, dcmi: Dcmi, host: Host) -> Watching:
    """A watcher that polls fast and has events too."""
    return Watching(nursery, worker, dcmi, host)


@pytest.fixture(params=["events", "polling"])
def either_way(
    request: pytest.FixtureRequest, watching: Watching, control: BoardControl
) -> Watching:
    """A watcher that has only events, and one that can only poll."""
    if request.param == "events":
        watching.interval = NEVER
    else:
        control.set_return_code("dcmi_subscribe_fault_event", -8255)
    return watching


@pytest.fixture
def hang(control: BoardControl) -> Iterator[Callable[[str, int], None]]:
    """Lets calls not return until the test ends."""
    hung: list[tuple[str, int]] = []

    def start(function: str, device: int) -> None:
        control.hang(function, device)
        hung.append((function, device))

    yield start
    for function, device in hung:
        control.release(function, device)


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


async def test_faults_from_before_the_start_are_known_at_the_start(
    watching: Watching, control: BoardControl
) -> None:
    """Events tell only what is new: the state at start is read."""
    control.add_fault(5, BUSINESS, Severity.MAJOR)
    await watching.start()
    assert watching.board.value.by_name["npu-5"].health.level is FaultLevel.RESTART_BUSINESS


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
        await watching.heard.wait_until(lambda events: len(events) == 2)
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
    assert caplog.text.count("the driver does not tell of faults") == 1


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
    """More events than are kept: the last state of every chip is right, and all are counted."""
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
            [len(npu.health.faults) for npu in board.npus] == [1, 0, 1, 0, 1, 0, 1, 0]
            and all(npu.health.level.rank <= FaultLevel.NOT_HANDLE.rank for npu in board.npus)
        )
    )


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
        while not file.exists() or not watching.faults.is_saved:  # noqa: ASYNC110 - a file
            await trio.sleep(0.01)
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


# --- which chips there are -----------------------------------------------------------------------


async def test_the_board_is_real_once_the_watcher_has_started(watching: Watching) -> None:
    """Who waits for the start finds all NPUs."""
    await watching.start()
    assert len(watching.board.value.npus) == 8


async def test_a_card_taken_out_leaves_the_board(
    watching: Watching, simulated: SimulatedBoard
) -> None:
    """When the PCI bus has lost an accelerator the cards are listed anew."""
    await watching.start()
    (simulated.dev_root / "davinci5").unlink()
    (simulated.sysfs_root / "bus/pci/devices/0000:41:00.0").unlink()
    fresh = await watching.until(lambda board: len(board.npus) == 7)
    assert "npu-5" not in fresh.by_name


async def test_a_card_that_the_driver_lists_late_is_found(
    watching: Watching, simulated: SimulatedBoard, caplog: pytest.LogCaptureFixture
) -> None:
    """The PCI bus shows a card before its driver does: nothing changes there when it is ready."""
    node = simulated.dev_root / "davinci5"
    node.rename(node.with_name("later"))
    await watching.start()
    assert len(watching.board.value.npus) == 7
    assert caplog.text.count("does not list all accelerators") == 1
    node.with_name("later").rename(node)
    await watching.until(lambda board: len(board.npus) == 8)


async def test_the_bus_is_not_read_for_each_event(
    worker: DcmiWorker, dcmi: Dcmi, simulated: SimulatedBoard
) -> None:
    """In a storm that would be most of the work."""
    reads = []

    class Counting(Host):
        def accelerators(self) -> tuple[str, ...]:
            reads.append(1)
            return super().accelerators()

    host = Counting(
        host_root=simulated.root, dev_root=simulated.dev_root, sysfs_root=simulated.sysfs_root
    )
    listing = Listing(worker, dcmi, host, NEVER)
    board = await listing.read(EMPTY_BOARD)
    assert board is not None
    reads.clear()
    assert not any(listing.is_due(board) for _ in range(100))
    assert len(reads) == 1


async def test_a_silent_card_is_looked_at_again(watching: Watching, control: BoardControl) -> None:
    """A card that boots while the driver starts is published as soon as it answers."""
    control.set_silent(5)
    await watching.start()
    assert len(watching.board.value.npus) == 7
    control.restore(5)
    fresh = await watching.until(lambda board: len(board.npus) == 8)
    assert fresh.unanswered == ()


async def test_the_watcher_waits_for_a_library_that_cannot_start(
    watching: Watching,
    control: BoardControl,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While init fails nothing is set, and it is said once; then the watcher starts."""
    control.set_return_code("dcmi_init", -8012)

    async def heal() -> None:
        with trio.fail_after(5):
            while "NPUs cannot be listed" not in caplog.text:  # noqa: ASYNC110 - a log line
                await trio.sleep(0.001)
        assert watching.board.value is EMPTY_BOARD
        control.release("dcmi_init")

    nursery.start_soon(heal)
    await watching.start()
    assert len(watching.board.value.npus) == 8
    assert caplog.text.count("NPUs cannot be listed") == 1


async def test_a_single_look_subscribes_to_nothing(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, control: BoardControl, watching: Watching
) -> None:
    """`read_board` gives NPUs with their health, and leaves the one subscription to others."""
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    board = await read_board(worker, dcmi, host, NodeFaults(None))
    assert [npu.health.state is HealthState.UNHEALTHY for npu in board.npus] == [
        number == 3 for number in range(8)
    ]
    await watching.start()
    assert watching.status.value.subscribed
