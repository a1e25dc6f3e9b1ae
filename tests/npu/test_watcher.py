from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, HealthState
from trio_npu_dra.npu.watcher import watch_board
from trio_npu_dra.observable import Observable
from trio_npu_dra.simulator import BoardControl, Severity, SimulatedBoard

Start = Callable[[], Awaitable[None]]


@pytest.fixture
def board() -> Observable[Board]:
    """What the watcher keeps."""
    return Observable(EMPTY_BOARD)


@pytest.fixture
def watch(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, board: Observable[Board], nursery: trio.Nursery
) -> Start:
    """Starts the watcher, which ends with the test."""

    async def start() -> None:
        run = partial(watch_board, worker, dcmi, host, board, interval_seconds=0.01)
        with trio.fail_after(5):
            await nursery.start(run)

    return start


async def until(board: Observable[Board], condition: Callable[[Board], bool]) -> Board:
    """The first Board seen that fulfils *condition*."""
    with trio.fail_after(5):
        while not condition(board.value):  # noqa: ASYNC110 - a short wait between looks
            await trio.sleep(0.001)
    return board.value


def state_of(number: int, board: Board) -> HealthState:
    """The verdict on one NPU."""
    return board.by_name[f"npu-{number}"].health.state


async def test_the_board_is_real_once_the_watcher_has_started(
    watch: Start,
    board: Observable[Board],
) -> None:
    """Who waits for the start finds all NPUs."""
    await watch()
    assert len(board.value.npus) == 8


async def test_a_fault_and_its_end_reach_the_board(
    watch: Start, board: Observable[Board], control: BoardControl
) -> None:
    """An alarm shows at the next look, and so does its end."""
    await watch()
    control.add_fault(3, 0x80E01801, Severity.MAJOR)
    await until(board, lambda value: state_of(3, value) is HealthState.UNHEALTHY)
    control.clear_fault(3, 0x80E01801)
    await until(board, lambda value: state_of(3, value) is HealthState.HEALTHY)


async def test_a_chip_that_reboots_keeps_its_place(
    watch: Start, board: Observable[Board], control: BoardControl
) -> None:
    """A chip is unknown while it boots, and the same NPU afterwards."""
    await watch()
    before = board.value
    control.set_booting(3)
    await until(board, lambda value: state_of(3, value) is HealthState.UNKNOWN)
    control.restore(3)
    assert await until(board, lambda value: state_of(3, value) is HealthState.HEALTHY) == before


async def test_a_card_taken_out_leaves_the_board(
    watch: Start, board: Observable[Board], simulated: SimulatedBoard
) -> None:
    """When the PCI bus has lost an accelerator the cards are listed anew."""
    await watch()
    (simulated.dev_root / "davinci5").unlink()
    (simulated.sysfs_root / "bus/pci/devices/0000:41:00.0").unlink()
    fresh = await until(board, lambda value: len(value.npus) == 7)
    assert "npu-5" not in fresh.by_name


async def test_a_silent_card_is_looked_at_again(
    watch: Start, board: Observable[Board], control: BoardControl
) -> None:
    """A card that boots while the driver starts is published as soon as it answers."""
    control.set_silent(5)
    await watch()
    assert len(board.value.npus) == 7
    control.restore(5)
    fresh = await until(board, lambda value: len(value.npus) == 8)
    assert fresh.unanswered == ()


async def test_the_watcher_waits_for_a_library_that_cannot_start(
    watch: Start,
    board: Observable[Board],
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
        assert board.value is EMPTY_BOARD
        control.release("dcmi_init")

    nursery.start_soon(heal)
    await watch()
    assert len(board.value.npus) == 8
    assert caplog.text.count("NPUs cannot be listed") == 1
