"""Tells vNPUs that people cut by hand from vNPUs that were cut for claims.

One that a container uses, or that the CDI file of a claim whose record cannot be read names, may be
a claim's all the same: it is in no ResourceSlice.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Final

import trio

from trio_npu_dra.agent.claims.side_by_side import side_by_side
from trio_npu_dra.agent.claims.vnpu_step import VnpuStep
from trio_npu_dra.agent.holds.hold import vnpu_holders, vnpus_of
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.offers import PartitionMode
from trio_npu_dra.kit.base.errors import DriverError
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 5.0
"""Until chips are asked again: one may not have answered, or a vNPU may have left its record."""


async def find_cut_by_hand(
    board: Observable[Board],
    ledger: Ledger,
    step: VnpuStep,
    partitioning: Observable[PartitionMode],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep `PartitionMode.by_hand` up to date, until cancelled; started after the first look."""
    is_started = False
    while True:
        seen = board.value
        found = await _cut_by_hand(seen, ledger, step, partitioning.value.by_hand or frozenset())
        partitioning.set(replace(partitioning.value, by_hand=found))
        if not is_started:
            is_started = True
            task_status.started()
        is_cut = any(chip.vnpus for chip in seen.chips)
        with trio.move_on_after(_AGAIN_SECONDS if is_cut else math.inf):
            await board.wait_for_other(seen)


async def _cut_by_hand(
    board: Board, ledger: Ledger, step: VnpuStep, known: frozenset[int]
) -> frozenset[int]:
    """The known ids that the Board still has, and new ones, for which the chips are asked.

    One that a container uses and nobody holds is asked for again.
    """

    async def ask(name: str, chip: Chip) -> frozenset[int]:
        try:
            return await step.cut_by_hand(chip.device_node)
        except DriverError as error:
            log.debug("origin of vNPUs unknown", extra={"npu": name, "problem": str(error)})
            return frozenset()

    holds = ledger.holds.value
    ours, held = vnpus_of(holds), vnpu_holders(holds).keys()
    used = {vdevice.id for chip in board.chips for vdevice in chip.vdevices if vdevice.in_use}
    there = {vnpu for chip in board.chips for vnpu in chip.vnpus}
    known = (known - used | held - ours) & there
    unknown = {
        chip.name: chip
        for chip in board.chips
        if chip.is_listed and not ours.union(known).issuperset(chip.vnpus)
    }
    found = await side_by_side(ask, unknown)  # a chip that hangs delays no other
    return known.union(*found.values())
