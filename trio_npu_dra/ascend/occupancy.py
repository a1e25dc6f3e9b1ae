"""Whether an NPU or a partition of one is in use."""

from __future__ import annotations

from collections.abc import Collection

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.partition import vnpu_node
from trio_npu_dra.kit.base.observable import Observable


async def is_any_occupied(
    worker: DcmiWorker, dcmi: Dcmi, board: Observable[Board], nodes: Collection[str]
) -> bool:
    """Whether a process uses one of some chips, or a container one of some partitions.

    They are named by their host device nodes. One that cannot be read, or asked now, counts as in
    use; a chip that is gone, or that the Board lacks, does not. A Board without chips says whether
    they are not known yet or there are none.
    """
    named = [
        chip
        for chip in board.value.chips
        if not chip.gone and not {chip.device_node, *map(vnpu_node, chip.vnpus)}.isdisjoint(nodes)
    ]
    if not board.value.chips:
        return bool(board.value.gaps)
    if any(chip.unlisted for chip in named):
        return True
    try:
        for chip in named:
            if chip.device_node in nodes:
                pids = await worker.call(dcmi.processes, chip.ref, device=chip.ref)
                if pids:
                    return True
            for vnpu in chip.vnpus:
                if vnpu_node(vnpu) in nodes:
                    vdevice = await worker.call(dcmi.vdevice, chip.ref, vnpu, device=chip.ref)
                    if vdevice.in_use:
                        return True
    except DcmiError:
        return True
    return False
