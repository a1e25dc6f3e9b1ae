"""Lists cards and chips, and decides when to list again."""

from __future__ import annotations

import logging
from typing import Final

import trio

from trio_npu_dra.backoff import Backoff
from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.discovery import discover
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import Board

log = logging.getLogger(__name__)

_INIT_DEADLINE_SECONDS: Final = 60.0  # it runs dmidecode and the like
_LAST_RETRY_SECONDS: Final = 300.0


async def init(worker: DcmiWorker, dcmi: Dcmi) -> None:
    """Have the library read the card table, while no other call runs.

    Raises:
        DcmiError: The library cannot, or an earlier call has not returned.
    """
    await worker.call(dcmi.init, alone=True, deadline_seconds=_INIT_DEADLINE_SECONDS)


class Listing:
    """Lists cards and chips, and decides when to list again.

    The library reads the list of cards in `init`, so each listing begins with that. It lists when
    the accelerators on the PCI bus have changed, and, ever more rarely, while something is missing:
    a card or chip that is listed does not answer, or an accelerator on the bus is not listed (it
    may be booting). Once the pause between two listings has grown to five minutes, an unlisted
    accelerator that was never known as an NPU is no longer retried: it may not be one.

    Args:
        worker: Runs the calls.
        dcmi: The library.
        host: Its PCI bus shows cards that come and go.
        pause_seconds: Between two checks of the bus, and before the first retry.

    Attributes:
        retry_at: When to list again if something was missing, on trio's clock.
    """

    def __init__(self, worker: DcmiWorker, dcmi: Dcmi, host: Host, pause_seconds: float) -> None:
        self.retry_at = 0.0
        self._worker = worker
        self._dcmi = dcmi
        self._host = host
        self._accelerators: tuple[str, ...] = ()
        self._bus_at = 0.0
        self._pause_seconds = pause_seconds
        self._backoff = Backoff(first=pause_seconds, limit=_LAST_RETRY_SECONDS)
        self._listings = 0  # since something is missing
        self._failure = ""

    def is_due(self, board: Board) -> bool:
        """Whether *board* may lack a chip, or have one too many; cheap between two checks."""
        now = trio.current_time()
        if now >= self._bus_at:
            self._bus_at = now + self._pause_seconds
            if self._host.accelerators() != self._accelerators:
                return True
        if now < self.retry_at:
            return False
        unlisted = set(board.unlisted)
        if self._next_pause() >= _LAST_RETRY_SECONDS:
            unlisted &= {chip.pci_bus_id for chip in board.chips}  # gone, but on the bus
        return bool(board.unanswered or self._failure or unlisted)

    async def read(self, known: Board) -> Board | None:
        """Initialise and discover; None if the library could not even list the cards."""
        accelerators = self._host.accelerators()
        if accelerators != self._accelerators:
            self._accelerators, self._listings = accelerators, 0
        self.retry_at = trio.current_time() + self._next_pause()
        self._listings += 1
        try:
            await init(self._worker, self._dcmi)
            board = await discover(self._worker, self._dcmi, self._host, known=known)
        except DcmiError as error:
            if str(error) != self._failure:
                log.warning("NPUs cannot be listed, trying again", extra={"error": str(error)})
            self._failure = str(error)
            return None
        self._failure = ""
        if board.unlisted and board.unlisted != known.unlisted:
            log.warning(
                "the Ascend driver does not list all accelerators on the PCI bus",
                extra={"addresses": list(board.unlisted)},
            )
        if not board.gaps:
            self._listings = 0
        return board

    def _next_pause(self) -> float:
        return self._backoff.pause(self._listings + 1)
