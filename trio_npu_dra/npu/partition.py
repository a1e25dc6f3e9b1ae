"""How chips may be handed out: the multi-die policy, vNPUs, and whether containers may share them.

All of it can be changed while we run (`npu-smi`, `dcmi_create_vdevice`), and no event reports it.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from trio_npu_dra.errors import DcmiError, NotSupported
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.types import MultiDiePolicy
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.facts import FactReader
from trio_npu_dra.npu.model import Board, Chip
from trio_npu_dra.npu.traits import TRAITS

log = logging.getLogger(__name__)


async def read_partition(worker: DcmiWorker, dcmi: Dcmi, board: Board) -> Board:
    """The Board with the present policy, vNPUs and share flags; no answer leaves one as it was."""
    return replace(
        board,
        multi_die_policy=await _policy_or_known(worker, dcmi, board),
        chips=tuple([await _with_partition(worker, dcmi, chip) for chip in board.chips]),
    )


async def read_policy(worker: DcmiWorker, dcmi: Dcmi, board: Board) -> MultiDiePolicy | None:
    """How A3 dies may be handed out; None without A3 dies, or if the Ascend driver has no policy.

    Raises:
        DcmiError: It cannot be read.
    """
    if all(TRAITS[chip.family].dies_of_module == 1 for chip in board.chips):
        return None
    try:
        return await worker.call(dcmi.multi_die_policy)
    except NotSupported:
        return None


async def _policy_or_known(worker: DcmiWorker, dcmi: Dcmi, board: Board) -> MultiDiePolicy | None:
    try:
        return await read_policy(worker, dcmi, board)
    except DcmiError as error:
        log.debug("multi-die policy not read", extra={"error": str(error)})
        return board.multi_die_policy


async def _with_partition(worker: DcmiWorker, dcmi: Dcmi, chip: Chip) -> Chip:
    if chip.gone:
        return chip
    try:
        fresh, problem = await worker.call(_partition_of, dcmi, chip, device=chip.ref)
    except DcmiError as error:
        fresh, problem = chip, str(error)
    if problem:
        log.debug("partition not read", extra={"chip": str(chip.ref), "problem": problem})
    return fresh


def _partition_of(dcmi: Dcmi, chip: Chip) -> tuple[Chip, str]:
    """The chip as it is split and shared now, and what was not answered."""
    facts = FactReader()
    fresh = replace(
        chip,
        vnpus=facts.read("vNPUs", chip.vnpus, dcmi.vnpus, chip.ref) or (),
        device_share=facts.read("device share", chip.device_share, dcmi.device_share, chip.ref),
    )
    return fresh, facts.problem
