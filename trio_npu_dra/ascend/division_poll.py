"""How others have tied chips together or split them: multi-die policy, vNPUs, device share.

All of it can be changed while we run (`npu-smi`, `dcmi_create_vdevice`), and no event reports it.
Only vNPUs show by their device nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import trio

from trio_npu_dra.ascend.chip import read_split
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy, VnpuMode
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

T = TypeVar("T")


class DivisionPoll:
    """Lets code that partitions or shares a chip wait until the Board reflects it."""

    def __init__(self) -> None:
        self._wanted = Observable(0)
        self._done = Observable(0)

    async def again(self) -> None:
        """Have all be read; return when the Board has what was read from now on.

        A chip that hangs may keep it waiting long.
        """
        number = self._wanted.value + 1
        self._wanted.set(number)
        await self._done.wait_until(lambda done: done >= number)

    async def follow(
        self,
        host: Host,
        read: Callable[[], Awaitable[None]],
        pause_seconds: float,
        *,
        looks: int,
    ) -> None:
        """Read again and again: when it is wanted, and when vNPUs come or go.

        Args:
            host: Has the nodes of vNPUs.
            read: Reads, and tells the Board.
            pause_seconds: Between two looks at the nodes.
            looks: After how many looks it reads in any case.
        """
        nodes, looked = host.vnpu_nodes(), 0
        while True:
            done = self._done.value
            with trio.move_on_after(pause_seconds):
                await self._wanted.wait_until(lambda wanted, done=done: wanted > done)  # type: ignore[misc]
            number, known, looked = self._wanted.value, nodes, looked + 1
            nodes = host.vnpu_nodes()
            if nodes != known or looked >= looks or number > done:
                await read()
                looked = 0
            self._done.set(number)


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
    return await _sure(worker, dcmi.multi_die_policy, board.multi_die_policy)


async def read_vnpu_mode(worker: DcmiWorker, dcmi: Dcmi, board: Board) -> VnpuMode | None:
    """Whom the node's vNPUs are for; the known answer where there is none now."""
    if not board.chips:
        return None
    try:
        return await _sure(worker, dcmi.vnpu_mode, board.vnpu_mode)
    except DcmiError as error:
        log.debug("mode of vNPUs not read", extra={"error": str(error)})
        return board.vnpu_mode


async def _sure(worker: DcmiWorker, call: Callable[[], T | None], known: T | None) -> T | None:
    """What a call says; instead of a known fact only what it says twice.

    All devices of the node change by it.

    Raises:
        DcmiError: It does not answer.
    """
    found = await _said(worker, call)
    if known is None or found == known or found == await _said(worker, call):
        return found
    return known


async def _said(worker: DcmiWorker, call: Callable[[], T | None]) -> T | None:
    try:
        return await worker.call(call)
    except NotSupported:
        return None


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
