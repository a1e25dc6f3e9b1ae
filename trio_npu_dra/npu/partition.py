"""How others have tied chips together or split them: multi-die policy, vNPUs, device share.

All of it can be changed while we run (`npu-smi`, `dcmi_create_vdevice`), and no event reports it.
Only vNPUs show by their device nodes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TypeAlias

import trio

from trio_npu_dra.errors import DcmiError, NotSupported
from trio_npu_dra.npu.chip import read_split
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.types import MultiDiePolicy, VnpuMode
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import Board, Chip
from trio_npu_dra.npu.traits import TRAITS

log = logging.getLogger(__name__)

VnpuNodes: TypeAlias = frozenset[tuple[str, int]]
"""Of the host: name and inode of each."""


async def split_due(host: Host, known: VnpuNodes, pause_seconds: float, *, looks: int) -> VnpuNodes:
    """Wait for so many looks at the nodes of vNPUs, or until they differ from those known.

    Returns:
        The nodes at the last look.
    """
    nodes = known
    for _ in range(looks):
        await trio.sleep(pause_seconds)
        nodes = host.vnpu_nodes()
        if nodes != known:
            break
    return nodes


async def read_partition(worker: DcmiWorker, dcmi: Dcmi, board: Board) -> Board:
    """The Board with the present policy, vNPUs and shares; what is not answered stays as it was."""
    return replace(
        board,
        multi_die_policy=await _policy_or_known(worker, dcmi, board),
        vnpu_mode=await read_vnpu_mode(worker, dcmi, board),
        chips=tuple([await _as_split_now(worker, dcmi, chip) for chip in board.chips]),
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


async def read_vnpu_mode(worker: DcmiWorker, dcmi: Dcmi, board: Board) -> VnpuMode | None:
    """Whom the node's vNPUs are for; the known answer where there is none now."""
    if not any(chip.vnpus for chip in board.chips):
        return None
    try:
        return await worker.call(dcmi.vnpu_mode)
    except NotSupported:
        return None
    except DcmiError as error:
        log.debug("mode of vNPUs not read", extra={"error": str(error)})
        return board.vnpu_mode


async def _policy_or_known(worker: DcmiWorker, dcmi: Dcmi, board: Board) -> MultiDiePolicy | None:
    try:
        return await read_policy(worker, dcmi, board)
    except DcmiError as error:
        log.debug("multi-die policy not read", extra={"error": str(error)})
        return board.multi_die_policy


async def _as_split_now(worker: DcmiWorker, dcmi: Dcmi, chip: Chip) -> Chip:
    if not chip.is_listed:
        return chip
    try:
        fresh, problem = await worker.call(read_split, dcmi, chip, device=chip.ref)
    except DcmiError as error:
        fresh, problem = chip, str(error)
    if problem:
        log.debug("partition not read", extra={"chip": str(chip.ref), "problem": problem})
    return fresh
