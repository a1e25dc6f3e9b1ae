"""Whether anybody works on an NPU."""

from __future__ import annotations

from collections.abc import Iterable

from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu.dcmi.client import Address, Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.model import Board
from trio_npu_dra.observable import Observable


async def is_any_occupied(
    worker: DcmiWorker, dcmi: Dcmi | None, board: Observable[Board], names: Iterable[str]
) -> bool:
    """Whether a process is on one of the NPUs *names*; a chip that does not answer counts as busy.

    Args:
        worker: Runs the calls.
        dcmi: The library, initialised; without one there are no processes.
        board: The NPUs of this node; a name that it lacks is a chip that is gone, so not busy.
        names: DRA device names.
    """
    for name in names:
        npu = board.value.by_name.get(name)
        if npu is None or dcmi is None:
            continue
        address = Address(npu.card_id, npu.device_id)
        try:
            if await worker.call(dcmi.processes, address, device=address):
                return True
        except DcmiError:
            return True
    return False
