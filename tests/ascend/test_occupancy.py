"""Whether an NPU is in use, through the simulated library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from dev.rig.looking import Look
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import EMPTY_BOARD, UNREAD_BOARD, Board
from trio_npu_dra.ascend.occupancy import is_any_occupied
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.lab.simulator import BoardControl

Occupied = Callable[..., Awaitable[bool]]


@pytest.fixture
def occupied(worker: DcmiWorker, dcmi: Dcmi, board: Board) -> Occupied:
    """Whether one of some device nodes is in use, on the simulated board or on another."""
    return lambda *nodes, on=board: is_any_occupied(
        worker, dcmi, Observable(on), [f"/dev/{node}" for node in nodes]
    )


async def test_a_process_makes_its_npu_busy(occupied: Occupied, control: BoardControl) -> None:
    """One busy NPU of several is enough; when the process has ended none is."""
    control.set_processes(3, [(4711, 1 << 20)])
    assert await occupied("davinci2", "davinci3")
    assert not await occupied("davinci2", "davinci4")
    control.set_processes(3, [])
    assert not await occupied("davinci2", "davinci3")


async def test_an_npu_that_does_not_answer_counts_as_busy(
    occupied: Occupied, control: BoardControl
) -> None:
    """A claim loses nothing on a guess."""
    control.set_return_code("dcmi_get_device_resource_info", -8012, 3)
    assert await occupied("davinci3")


async def test_an_npu_that_is_not_listed_counts_as_busy(occupied: Occupied, board: Board) -> None:
    """It is not asked: another chip may have its numbers now."""
    chips = [replace(chip, unlisted=chip.physical_id == 3) for chip in board.chips]
    unlisted = replace(board, chips=tuple(chips))
    assert await occupied("davinci2", "davinci3", on=unlisted)
    assert not await occupied("davinci2", on=unlisted)


async def test_all_chips_count_as_busy_before_the_library_starts(occupied: Occupied) -> None:
    """The Board has none then."""
    assert await occupied("davinci3", on=UNREAD_BOARD)


async def test_a_missing_chip_is_not_busy(occupied: Occupied) -> None:
    """Neither one that is gone nor any on a node without the Ascend driver."""
    assert not await occupied("davinci99")
    assert not await occupied("davinci3", on=EMPTY_BOARD)


async def test_a_partition_is_busy_while_a_container_has_it_open(
    occupied: Occupied, look: Look, control: BoardControl
) -> None:
    """Whatever happens to the other partitions of its chip; one that is gone is not busy."""
    partitions = [control.create_vnpu(3, "vir05_1c_8g") for _ in range(2)]
    board = await look()
    control.use_vnpu(3, partitions[0])
    control.set_processes(3, [(4711, 1 << 20)])
    assert await occupied("vdavinci148", on=board)
    assert not await occupied("vdavinci149", on=board)
    assert not await occupied("vdavinci150", on=board)
    control.set_return_code("dcmi_get_device_info", -8012, 3)
    assert await occupied("vdavinci149", on=board)
