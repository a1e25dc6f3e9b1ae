"""Whether an NPU or a piece of one is in use."""

from __future__ import annotations

from collections.abc import Collection

from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.types import ChipRef
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.model import Board
from trio_npu_dra.npu.piece import vnpu_node
from trio_npu_dra.observable import Observable


async def is_any_occupied(
    worker: DcmiWorker, dcmi: Dcmi | None, board: Observable[Board], nodes: Collection[str]
) -> bool:
    """Whether a process uses one of some chips, or a container one of some pieces.

    What cannot be read counts as in use.

    Args:
        worker: Runs the calls.
        dcmi: The library, initialised; without one there are no processes.
        board: The chips of this node; a chip that it lacks or that is gone is not in use. While it
            is empty, because the library has not started yet, any chip counts as in use.
        nodes: The chips' host device nodes, and those of pieces (vNPUs).
    """
    if dcmi is None:
        return False
    if not board.value.chips:
        return True
    pieces = {
        (chip.ref, vnpu)
        for chip in board.value.chips
        for vnpu in chip.vnpus
        if vnpu_node(vnpu) in nodes and not chip.gone
    }
    whole = (chip.ref for chip in board.value.chips if chip.device_node in nodes and not chip.gone)
    try:
        for ref in whole:
            if await worker.call(dcmi.processes, ref, device=ref):
                return True
        for ref, vnpu in pieces:
            if await worker.call(_is_used, dcmi, ref, vnpu, device=ref):
                return True
    except DcmiError:
        return True
    return False


def _is_used(dcmi: Dcmi, chip: ChipRef, vnpu: int) -> bool:
    return dcmi.vdevice(chip, vnpu).in_use
