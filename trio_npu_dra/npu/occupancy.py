"""Whether a process uses an NPU."""

from __future__ import annotations

from collections.abc import Collection

from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.model import Board
from trio_npu_dra.observable import Observable


async def is_any_occupied(
    worker: DcmiWorker, dcmi: Dcmi | None, board: Observable[Board], nodes: Collection[str]
) -> bool:
    """Whether a process uses one of some chips; a chip that cannot be read counts as in use.

    Args:
        worker: Runs the calls.
        dcmi: The library, initialised; without one there are no processes.
        board: The chips of this node; a chip that it lacks or that is gone is not in use. While it
            is empty, because the library has not started yet, any chip counts as in use.
        nodes: The chips' host device nodes.
    """
    if dcmi is None:
        return False
    if not board.value.chips:
        return True
    there = [chip for chip in board.value.chips if chip.device_node in nodes and not chip.gone]
    for chip in there:
        try:
            if await worker.call(dcmi.processes, chip.ref, device=chip.ref):
                return True
        except DcmiError:
            return True
    return False
