"""Lists cards and chips, and decides when to list again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, IdUnknown, NotSupported
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.discovery import (
    discover,
    has_left_bus,
    unlisted_accelerators,
    without_cards,
)
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, Chip

log = logging.getLogger(__name__)

_INIT_DEADLINE_SECONDS: Final = 60.0  # it runs dmidecode and the like
_LAST_RETRY_SECONDS: Final = 300.0


async def init(
    worker: DcmiWorker,
    dcmi: Dcmi,
    host: Host,
    known: Board,
    *,
    on_late: Callable[[None], object] | None = None,
) -> None:
    """Have the library read the card table, while no other call runs that could matter.

    Raises:
        DcmiError: The library cannot, or an earlier call that matters has not returned; *on_late*
            is called if this one succeeds after its deadline.
    """
    await worker.call(
        dcmi.init,
        alone=True,
        beside=partial(_is_harmless, host, known),
        deadline_seconds=_INIT_DEADLINE_SECONDS,
        on_late=on_late,
    )


def _is_harmless(host: Host, known: Board, device: Hashable) -> bool:
    """Whether `init` may run beside a call that hangs with *device*.

    `init` must not hang as well: it asks each chip that the Ascend driver has, which excludes chips
    that have left the bus, and it asks no RoCE port (DCMI source; docs/internals/hardware.md,
    "Listing cards").
    """
    if isinstance(device, tuple) and device[0] == "network":
        return True
    ref = device[0] if isinstance(device, tuple) else device
    chips = [chip for chip in known.chips if ref in (chip.ref, chip.card_id)]
    return bool(chips) and all(has_left_bus(chip, host.accelerators()) for chip in chips)


async def list_chips(
    worker: DcmiWorker,
    dcmi: Dcmi,
    host: Host,
    known: Board,
    *,
    is_initialised: bool = False,
    on_late: Callable[[None], object] | None = None,
    on_init: Callable[[], object] = lambda: None,
) -> Board:
    """Initialise the library, unless it is, then call *on_init*, and read all chips.

    *known* is the Board of the last listing. A library that has no chip here is an answer: the node
    has none, or none of this kind.

    Raises:
        DcmiError: The library cannot list the cards, or an earlier call has not returned;
            *on_late* as for `init`.
    """
    try:
        if not is_initialised:
            await init(worker, dcmi, host, known, on_late=on_late)
        on_init()
        return await discover(worker, dcmi, host, known=known)
    except (IdUnknown, NotSupported) as error:
        return without_cards(host, known, str(error))


class Listing:
    """Lists cards and chips, and decides when to list again.

    It lists when the accelerators on the PCI bus or the NPUs' device nodes have changed (a starting
    Ascend driver makes new nodes), soon again while the cards cannot be listed or none is there,
    and, ever more rarely, while the Board has gaps or a listed chip has given errors alone for long
    (it may have been reset, which the library learns in `init`).

    *pause_seconds* pass between two checks of the bus, and before the first retry.

    Attributes:
        retry_at: When to list again if something was missing, on trio's clock.
        failure: Why the cards could not be listed the last time; empty if they could.
        is_ahead: Whether the library has numbers for chips that the last list may lack.
    """

    def __init__(self, worker: DcmiWorker, dcmi: Dcmi, host: Host, pause_seconds: float) -> None:
        self.retry_at = 0.0
        self._worker = worker
        self._dcmi = dcmi
        self._host = host
        self._hardware: object = None
        self._is_listed = False
        self._bus_at = 0.0
        self._first_pause = pause_seconds
        self._listings = 0  # since something is missing
        self._is_initialised = False  # by a call that came back after its deadline
        self.failure = ""
        self.is_ahead = False
        self._left: frozenset[str] = frozenset()  # not on the bus when the last list failed

    def is_due(self, board: Board, *, is_chip_failing: bool = False) -> bool:
        """Whether the last *board* may lack a chip, or have one too many; cheap between two checks.

        *is_chip_failing*: whether one of its listed chips has given errors alone for long.
        """
        now = trio.current_time()
        # A listing that cannot run would only make the Board say so.
        is_chip_failing = is_chip_failing and not self._worker.in_the_way(
            partial(_is_harmless, self._host, board)
        )
        if not (is_chip_failing or board.gaps):
            self._listings = 0
        if now >= self._bus_at:
            self._bus_at = now + self._first_pause
            if self._hardware_now != self._hardware:
                return True
        if now < self.retry_at:
            return False
        unlisted = set(board.unlisted_accelerators)
        if self._pause >= _LAST_RETRY_SECONDS:
            # An accelerator that was never known as an NPU may not be one.
            unlisted &= {chip.pci_bus_id for chip in board.chips}
        return bool(board.unanswered or self.failure or unlisted or is_chip_failing)

    async def read(self, known: Board) -> Board | None:
        """List and discover.

        Returns:
            None if the cards cannot be listed and nothing is new; a known Board then says why.
        """
        hardware = self._hardware_now
        if hardware != self._hardware:
            self._hardware, self._listings, self._is_initialised = hardware, 0, False
        began = trio.current_time()
        self.retry_at = began + self._pause
        self._listings += 1
        is_initialised, self._is_initialised = self._is_initialised, False
        try:
            board = await list_chips(
                self._worker,
                self._dcmi,
                self._host,
                known,
                is_initialised=is_initialised,
                on_late=self._take_late,
                on_init=partial(setattr, self, "is_ahead", True),
            )
        except DcmiError as error:
            now = trio.current_time()
            # A listing keeps other calls waiting: for as long as it took they come first.
            self.retry_at = now + max(self._first_pause, now - began)
            return self._failed(known, str(error))
        self.failure, self._is_listed, self._left = "", True, frozenset()
        unlisted = board.unlisted_accelerators
        if unlisted and unlisted != known.unlisted_accelerators:
            log.warning(
                "the Ascend driver does not list all accelerators on the PCI bus",
                extra={"addresses": list(unlisted)},
            )
        # The next list decides whether a chip is gone, and may be the first one with any.
        if any(chip.unlisted for chip in board.chips) or not any(map(_is_listed, board.chips)):
            self._bus_at = self.retry_at = trio.current_time() + self._first_pause
        return board

    def _take_late(self, _: None) -> None:
        """Have chips read with what `init` found, though it came after its deadline."""
        self._is_initialised, self.retry_at = True, trio.current_time()

    def _failed(self, known: Board, error: str) -> Board | None:
        """The known Board, with the reason why it may lack chips; None if there is no change.

        A chip that was not on the PCI bus at two such times in a row is gone. On a node without
        Ascend hardware there is nothing to list.
        """
        if not known.chips and not self._host.is_ascend_present():
            if not self.failure:
                log.info("no Ascend NPU on this node", extra={"ascend_driver": error})
            is_news = not self._is_listed or known != EMPTY_BOARD
            self.failure, self._is_listed = error, True
            return EMPTY_BOARD if is_news else None
        hung = ", ".join(map(str, self._worker.hung))
        failure = f"{error}; not returned: {hung}" if hung else error
        if failure != self.failure:
            log.warning("NPUs cannot be listed, trying again", extra={"error": failure})
        self.failure = failure
        on_bus, before = self._host.accelerators(), self._left
        self._left = frozenset(chip.name for chip in known.chips if has_left_bus(chip, on_bus))
        gone = before & self._left
        chips = tuple(replace(chip, gone=chip.gone or chip.name in gone) for chip in known.chips)
        board = replace(
            known,
            chips=chips,
            unanswered=(f"the cards cannot be listed: {failure}",),
            unlisted_accelerators=unlisted_accelerators(chips, self._host),
        )
        return board if self._is_listed and board != known else None

    @property
    def _hardware_now(self) -> object:
        """What changes on the host when NPUs or their Ascend driver come and go."""
        return self._host.accelerators(), self._host.npu_nodes()

    @property
    def _pause(self) -> float:
        # The exponent is bounded because a float is.
        return min(_LAST_RETRY_SECONDS, self._first_pause * 2.0 ** min(self._listings, 64))


def _is_listed(chip: Chip) -> bool:
    return chip.is_listed
