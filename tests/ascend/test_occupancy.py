"""Whether anybody works on an NPU, through the simulated library."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.ascend.occupancy import is_any_occupied
from trio_npu_dra.ascend.watcher import read_board
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.lab.simulator import BoardControl


@pytest.fixture
async def board(worker: DcmiWorker, dcmi: Dcmi, host: Host) -> Observable[Board]:
    """The NPUs of the simulated board."""
    return Observable(await read_board(worker, dcmi, host, NodeFaults(None)))


async def test_a_process_makes_its_npu_busy(
    worker: DcmiWorker, dcmi: Dcmi, board: Observable[Board], control: BoardControl
) -> None:
    """One busy NPU of several is enough; when the process has ended none is."""
    control.set_processes(3, [(4711, 1 << 20)])
    assert await is_any_occupied(worker, dcmi, board, ["/dev/davinci2", "/dev/davinci3"])
    assert not await is_any_occupied(worker, dcmi, board, ["/dev/davinci2", "/dev/davinci4"])
    control.set_processes(3, [])
    assert not await is_any_occupied(worker, dcmi, board, ["/dev/davinci2", "/dev/davinci3"])


async def test_an_npu_that_does_not_answer_counts_as_busy(
    worker: DcmiWorker, dcmi: Dcmi, board: Observable[Board], control: BoardControl
) -> None:
    """Nothing is taken from a claim on a guess."""
    control.set_return_code("dcmi_get_device_resource_info", -8012, 3)
    assert await is_any_occupied(worker, dcmi, board, ["/dev/davinci3"])


async def test_an_npu_that_is_not_listed_counts_as_busy(
    worker: DcmiWorker, dcmi: Dcmi, board: Observable[Board]
) -> None:
    """It is not asked by numbers that are another one's now."""
    chips = [replace(chip, unlisted=chip.physical_id == 3) for chip in board.value.chips]
    unlisted = Observable(replace(board.value, chips=tuple(chips)))
    assert await is_any_occupied(worker, dcmi, unlisted, ["/dev/davinci2", "/dev/davinci3"])
    assert not await is_any_occupied(worker, dcmi, unlisted, ["/dev/davinci2"])


async def test_chips_that_are_not_known_yet_count_as_busy(worker: DcmiWorker, dcmi: Dcmi) -> None:
    """While the library does not start, nobody can say who uses them."""
    assert await is_any_occupied(worker, dcmi, Observable(EMPTY_BOARD), ["/dev/davinci3"])


async def test_what_is_not_there_is_not_busy(
    worker: DcmiWorker, dcmi: Dcmi, board: Observable[Board]
) -> None:
    """Neither a chip that is gone nor any on a node without the Ascend driver."""
    assert not await is_any_occupied(worker, dcmi, board, ["/dev/davinci99"])
    assert not await is_any_occupied(worker, None, Observable(EMPTY_BOARD), ["/dev/davinci3"])
    assert not await is_any_occupied(worker, None, board, ["/dev/davinci3"])


async def test_a_partition_is_busy_while_a_container_has_it_open(
    worker: DcmiWorker, dcmi: Dcmi, host: Host, control: BoardControl
) -> None:
    """Whatever happens to the other partitions of its chip; one that is gone is not busy."""
    partitions = [control.create_vnpu(3, "vir05_1c_8g") for _ in range(2)]
    board = Observable(await read_board(worker, dcmi, host, NodeFaults(None)))
    control.use_vnpu(3, partitions[0])
    control.set_processes(3, [(4711, 1 << 20)])
    assert await is_any_occupied(worker, dcmi, board, ["/dev/vdavinci148"])
    assert not await is_any_occupied(worker, dcmi, board, ["/dev/vdavinci149"])
    assert not await is_any_occupied(worker, dcmi, board, ["/dev/vdavinci150"])
    control.set_return_code("dcmi_get_device_info", -8012, 3)
    assert await is_any_occupied(worker, dcmi, board, ["/dev/vdavinci149"])
