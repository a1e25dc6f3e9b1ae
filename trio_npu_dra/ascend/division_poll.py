"""How chips are divided now: multi-die policy, vNPUs, share flags.

Other programs change these while we run (`npu-smi`, `dcmi_create_vdevice`), and no event reports
it. Only vNPUs show by their device nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import trio

from trio_npu_dra.ascend.chip import read_chip_division
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy, VnpuMode
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.identity import told_apart
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

    def request(self) -> int:
        """Have it read now; the number of the reading."""
        self._wanted.set(self._wanted.value + 1)
        return self._wanted.value

    async def again(self) -> None:
        """Read now; return when the Board has the result. A chip that hangs delays it long."""
        number = self.request()
        await self._done.wait_until(lambda done: done >= number)

    async def follow(
        self, host: Host, read: Callable[[], Awaitable[None]], pause_seconds: float, *, looks: int
    ) -> None:
        """Read on request, when vNPUs come or go, and now and then, until cancelled.

        Args:
            host: Has the nodes of vNPUs.
            read: Updates the Board.
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


async def read_division(worker: DcmiWorker, dcmi: Dcmi, board: Board) -> Board:
    """The Board with the present division; unanswered facts stay."""
    try:
        policy = await read_policy(worker, dcmi, board)
    except DcmiError as error:
        log.debug("multi-die policy not read", extra={"error": str(error)})
        policy = board.multi_die_policy
    chips = [await _as_divided_now(worker, dcmi, chip) for chip in board.chips]
    return replace(
        board,
        multi_die_policy=policy,
        vnpu_mode=await read_vnpu_mode(worker, dcmi, board),
        chips=told_apart(chips, board.by_name)[0],
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
    """What the node's vNPUs are for; the known mode if there is no answer now."""
    if not board.chips:
        return None
    try:
        return await _sure(worker, dcmi.vnpu_mode, board.vnpu_mode)
    except DcmiError as error:
        log.debug("mode of vNPUs not read", extra={"error": str(error)})
        return board.vnpu_mode


async def _sure(worker: DcmiWorker, call: Callable[[], T | None], known: T | None) -> T | None:
    """The answer of a call; one that differs from the known fact counts only if given twice.

    All devices of the node depend on it.

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


async def _as_divided_now(worker: DcmiWorker, dcmi: Dcmi, chip: Chip) -> Chip:
    if not chip.is_listed:
        return chip
    try:
        fresh, problem = await worker.call(read_chip_division, dcmi, chip, device=chip.ref)
    except DcmiError as error:
        fresh, problem = chip, str(error)
    if problem:
        log.debug("division not read", extra={"chip": str(chip.ref), "problem": problem})
    return fresh
