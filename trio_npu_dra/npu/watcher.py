"""Keep the Board true: the chips' health at each look, and everything when the chips change."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

import trio

from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu.dcmi.client import Address, Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.discovery import discover
from trio_npu_dra.npu.health import ask_health
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import Board
from trio_npu_dra.observable import Observable

log = logging.getLogger(__name__)

_INIT_DEADLINE_SECONDS: Final = 60.0  # it runs dmidecode and the like
_LAST_RETRY_SECONDS: Final = 300.0


async def watch_board(
    worker: DcmiWorker,
    dcmi: Dcmi,
    host: Host,
    board: Observable[Board],
    *,
    interval_seconds: float,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Look at the NPUs every *interval_seconds*, for ever; once started, *board* is real.

    The library's list of cards is as old as its `init`, so that a new look begins with one. It is
    taken when the accelerators on the PCI bus changed, and, ever more rarely, while a card or chip
    that is listed does not answer (it may be booting).

    Args:
        worker: Runs the calls.
        dcmi: The library, not initialised yet.
        host: Its PCI bus tells of cards that come and go.
        board: Gets every Board that differs from the one before.
        interval_seconds: Pause between two looks.
        task_status: Told after the first Board is set.
    """
    look = _Look(worker, dcmi, host, interval_seconds)
    while True:
        first = await look.at_everything(board.value)
        if first is not None:
            break
        await trio.sleep_until(look.retry_at)
    board.set(first)
    log.info("NPUs found", extra={"npus": len(first.npus), "driver": first.driver_version})
    task_status.started()
    while True:
        await trio.sleep(interval_seconds)
        fresh = None
        if look.is_due(board.value):
            fresh = await look.at_everything(board.value)
        board.set(fresh or await look.at_health(board.value))


class _Look:
    """The two ways to look, and when the long one is due.

    Attributes:
        retry_at: When to look at everything again if something was missing, on trio's clock.
    """

    def __init__(
        self, worker: DcmiWorker, dcmi: Dcmi, host: Host, first_retry_seconds: float
    ) -> None:
        self.retry_at = 0.0
        self._worker = worker
        self._dcmi = dcmi
        self._host = host
        self._accelerators: tuple[str, ...] = ()
        self._first_retry_seconds = first_retry_seconds
        self._retry_seconds = first_retry_seconds
        self._failure = ""

    def is_due(self, board: Board) -> bool:
        """Whether *board* may lack a chip, or have one too many."""
        if self._host.accelerators() != self._accelerators:
            return True
        unsure = bool(board.unanswered or self._failure)
        return unsure and trio.current_time() >= self.retry_at

    async def at_everything(self, known: Board) -> Board | None:
        """Initialise and discover; None when the library could not even list the cards."""
        accelerators = self._host.accelerators()
        if accelerators != self._accelerators:
            self._accelerators, self._retry_seconds = accelerators, self._first_retry_seconds
        self.retry_at = trio.current_time() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, _LAST_RETRY_SECONDS)
        try:
            await self._worker.call(
                self._dcmi.init, alone=True, deadline_seconds=_INIT_DEADLINE_SECONDS
            )
            board = await discover(self._worker, self._dcmi, self._host, known=known)
        except DcmiError as error:
            if str(error) != self._failure:
                log.warning("NPUs cannot be listed, trying again", extra={"error": str(error)})
            self._failure = str(error)
            return None
        self._failure = ""
        if not board.unanswered:
            self._retry_seconds = self._first_retry_seconds
        return board

    async def at_health(self, board: Board) -> Board:
        """The same NPUs, as they are now."""
        npus = []
        for npu in board.npus:
            address = Address(npu.card_id, npu.device_id)
            health = await ask_health(self._worker, self._dcmi, address)
            npus.append(replace(npu, health=health))
        return replace(board, npus=tuple(npus))
