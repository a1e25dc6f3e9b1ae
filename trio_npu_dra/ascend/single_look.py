"""One look at all NPUs, for commands: the daemon has `ascend.watcher`."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health import read_chip
from trio_npu_dra.ascend.health_sample import APART
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.listing import list_chips
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, Chip


async def read_board(worker: DcmiWorker, dcmi: Dcmi, host: Host, faults: NodeFaults) -> Board:
    """Read all NPUs once, and a second time those that one reading leaves in doubt.

    Raises:
        DcmiError: The library cannot list the cards.
    """
    listed = await list_chips(worker, dcmi, host, EMPTY_BOARD)
    due: Sequence[Chip] = listed.chips
    for pause in (0.0, APART):
        await trio.sleep(pause if due else 0.0)
        for chip in due:
            reading = await read_chip(worker, dcmi, chip.ref)
            faults.of(chip).confirm_and_take(reading, faults.now())
        due = [chip for chip in due if faults.of(chip).recheck_at is not None]
    return faults.judge(listed)
