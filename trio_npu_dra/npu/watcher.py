"""Keep the Board true: every fault at once, every chip now and then, all chips when they change.

A chip is looked at when a fault event names it, when a rule of the fault table is about to speak,
and in any case from time to time, because events can be lost. Events only say where to look: what
counts is what the chip says then. A chip that many events name is looked at a few times a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import trio

from trio_npu_dra import pulse
from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu.dcmi.client import Address, Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.discovery import discover
from trio_npu_dra.npu.fault_events import EventInbox, FaultEvent
from trio_npu_dra.npu.fault_memory import SAVE_SECONDS, NodeFaults
from trio_npu_dra.npu.health import read_chip, read_network
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.listing import Listing, init
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, Chip
from trio_npu_dra.observable import Observable

log = logging.getLogger(__name__)

_REPAIR_INTERVALS: Final = 12  # between two looks at a chip that no event names
_REFUSED_INTERVALS: Final = 60  # until a driver that did not want to tell of faults is asked again
_STUCK_SECONDS: Final = 120.0  # other calls, `init` too, may be in line before this one
_LISTING_STUCK_SECONDS: Final = 600.0  # a dozen calls a chip, each with a deadline of its own
_QUIET_SECONDS: Final = 0.05  # between two looks at a chip that events keep naming


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """How faults come to be known, for people and metrics.

    Attributes:
        subscribed: Whether the driver tells of them; else chips are asked in turn.
        refusal: Why it does not, empty when it does or was not asked yet; asked again in time.
        lost: Events beyond those that are kept for a watcher that is busy.
    """

    subscribed: bool = False
    refusal: str = ""
    lost: int = 0

    @property
    def asked(self) -> bool:
        """Whether the driver has said whether it tells; all chips were looked at before."""
        return self.subscribed or bool(self.refusal)


async def watch_board(
    worker: DcmiWorker,
    dcmi: Dcmi,
    host: Host,
    *,
    board: Observable[Board],
    faults: NodeFaults,
    status: Observable[WatchStatus],
    interval_seconds: float,
    told: Callable[[FaultEvent], object] = lambda _: None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *board* true, for ever; once started, it is real.

    Args:
        worker: Runs the calls.
        dcmi: The library, not initialised yet.
        host: Its PCI bus tells of cards that come and go.
        board: Gets every Board that differs from the one before.
        faults: What is known of the chips' faults; saved when it changes.
        status: Kept up to date.
        interval_seconds: Pause between two looks at a chip where no events come, at a chip that
            does not answer, at RoCE ports and at the PCI bus; a chip that is well and has events
            is looked at every twelfth time.
        told: Called with each event that was kept.
        task_status: Told after the first Board is set.
    """
    watch = _Watch(
        worker,
        dcmi,
        host,
        board=board,
        faults=faults,
        status=status,
        interval=interval_seconds,
        told=told,
    )
    await watch.at_start()
    log.info(
        "NPUs found",
        extra={"npus": len(board.value.chips), "driver": board.value.driver_version},
    )
    task_status.started()
    await watch.subscribe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.keep_asking_for_events)
        nursery.start_soon(watch.wake_on_release)
        nursery.start_soon(watch.follow_networks)
        nursery.start_soon(watch.keep_saved)
        await watch.run()


async def read_board(worker: DcmiWorker, dcmi: Dcmi, host: Host, faults: NodeFaults) -> Board:
    """Look at all NPUs once.

    Raises:
        DcmiError: The library cannot list the cards.
    """
    await init(worker, dcmi)
    found = await discover(worker, dcmi, host)
    for npu in found.chips:
        reading = await read_chip(worker, dcmi, _address(npu))
        faults.of(npu).take(reading, faults.now())
    return _with_health(found, faults)


class _Watch:
    """The state of one `watch_board`."""

    def __init__(
        self,
        worker: DcmiWorker,
        dcmi: Dcmi,
        host: Host,
        *,
        board: Observable[Board],
        faults: NodeFaults,
        status: Observable[WatchStatus],
        interval: float,
        told: Callable[[FaultEvent], object],
    ) -> None:
        self._worker = worker
        self._dcmi = dcmi
        self._board = board
        self._faults = faults
        self._status = status
        self._interval = interval
        self._told = told
        self._listing = Listing(worker, dcmi, host, interval)
        self._inbox = EventInbox(self.wake)
        self._news = trio.Event()
        self._due: dict[str, float] = {}
        self._looked_at: dict[str, float] = {}
        self._heard_at: dict[str, float] = {}
        self._unsaved = trio.Event()

    # --- start -----------------------------------------------------------------------------------

    async def at_start(self) -> None:
        """Wait until the library lists the cards, and look at all of them."""
        found = await self._listing.read(EMPTY_BOARD)
        while found is None:
            await trio.sleep_until(self._listing.retry_at)
            found = await self._listing.read(EMPTY_BOARD)
        await self._look_at_all(found)

    async def subscribe(self) -> None:
        """Ask for events; without them chips are asked in turn."""
        try:
            await self._worker.call(self._dcmi.subscribe, self._inbox.put)
        except DcmiError as error:
            if self._status.set(replace(self._status.value, refusal=str(error))):
                log.warning(
                    "the driver does not tell of faults, asking every %g s instead",
                    self._interval,
                    extra={"error": str(error)},
                )
            return
        self._status.set(replace(self._status.value, subscribed=True, refusal=""))
        for npu in self._board.value.chips:
            self._want(npu)  # what happened since the first look sent no event
        self.wake()

    async def keep_asking_for_events(self) -> None:
        """Ask again now and then until the driver agrees: it may have been busy, or not ready."""
        while not self._status.value.subscribed:
            await trio.sleep(_REFUSED_INTERVALS * self._interval)
            await self.subscribe()

    # --- what wakes the loop ---------------------------------------------------------------------

    def wake(self) -> None:
        """Have the loop go round now."""
        self._news.set()

    async def wake_on_release(self) -> None:
        """Have everybody told when somebody released a chip."""
        while True:
            await self._faults.wait_released()
            self.wake()

    async def follow_networks(self) -> None:
        """Look at the RoCE ports, apart: on a dropped card the call blocks."""
        without: set[str] = set()
        while True:
            for npu in self._board.value.chips:
                if npu.name in without:
                    continue
                chip = self._faults.of(npu)
                with pulse.step(f"asking for the network of {npu.name}", limit=_STUCK_SECONDS):
                    problem = await read_network(
                        self._worker, self._dcmi, _address(npu), known=chip.network
                    )
                if problem is None:
                    without.add(npu.name)
                elif problem != chip.network:
                    chip.network = problem
                    self.wake()
            await trio.sleep(self._interval)

    # --- the file --------------------------------------------------------------------------------

    async def keep_saved(self) -> None:
        """Write what changed, apart and not too often; the last of it also when cancelled."""
        try:
            while True:
                await self._unsaved.wait()
                with pulse.step("saving faults", limit=_STUCK_SECONDS):
                    await self._faults.save_apart()
                await trio.sleep(SAVE_SECONDS)
                self._unsaved = trio.Event()
                self._note_unsaved()
        finally:
            self._faults.save()

    def _note_unsaved(self) -> None:
        if not self._faults.is_saved:
            self._unsaved.set()

    # --- the loop --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look where and when it is due, without end."""
        while True:
            with trio.move_on_at(self._next_step()):
                await self._news.wait()
            self._news = trio.Event()
            self._take_events()
            await self._list_if_due()
            for npu in self._board.value.chips:
                if self._due[npu.name] <= trio.current_time():
                    await self._look(npu)
                    self._tell(self._heard_of(npu))
            self._tell()
            self._note_unsaved()

    async def _list_if_due(self) -> None:
        if self._listing.is_due(self._board.value):
            with pulse.step("listing NPUs", limit=_LISTING_STUCK_SECONDS):
                found = await self._listing.read(self._board.value)
            if found is not None:
                await self._look_at_all(found)

    def _take_events(self) -> None:
        """Note what events say, and look at the chips that they name."""
        events, lost = self._inbox.take()
        by_logic_id = {npu.logic_id: npu for npu in self._board.value.chips}
        for event in events:
            self._told(event)
            npu = by_logic_id.get(event.logic_id)
            if npu is not None:
                self._faults.of(npu).note(event, self._faults.now())
                self._heard_at.setdefault(npu.name, event.heard_at)
                self._want(npu)
        if lost:
            log.warning("fault events lost, looking at every chip", extra={"lost": lost})
            for npu in self._board.value.chips:
                self._want(npu)
            status = self._status.value
            self._status.set(replace(status, lost=status.lost + lost))

    async def _look_at_all(self, found: Board) -> None:
        for npu in found.chips:
            await self._look(npu)
            self._heard_at.pop(npu.name, None)  # listing took longer than the event
        self._board.set(_with_health(found, self._faults))

    async def _look(self, npu: Chip) -> None:
        self._due.pop(npu.name, None)
        self._looked_at[npu.name] = trio.current_time()
        with pulse.step(f"looking at {npu.name}", limit=_STUCK_SECONDS):
            reading = await read_chip(self._worker, self._dcmi, _address(npu))
        chip = self._faults.of(npu)
        chip.take(reading, self._faults.now())
        is_quick = not reading.is_whole or not self._status.value.subscribed
        self._want(npu, after=self._interval * (1 if is_quick else _REPAIR_INTERVALS))
        if chip.recheck_at is not None:
            self._want(npu, after=chip.recheck_at - self._faults.now())

    def _want(self, npu: Chip, *, after: float = 0.0) -> None:
        """Have a chip looked at, in *after* seconds or when it was left alone for a moment."""
        rested = self._looked_at[npu.name] + _QUIET_SECONDS
        at = max(trio.current_time() + after, rested)
        self._due[npu.name] = min(self._due.get(npu.name, at), at)

    def _heard_of(self, npu: Chip) -> float | None:
        """When the event arrived for which the chip was looked at, once that look is the last."""
        if self._faults.of(npu).recheck_at is not None:
            return self._heard_at.get(npu.name)
        return self._heard_at.pop(npu.name, None)

    def _tell(self, heard_at: float | None = None) -> None:
        board = _with_health(self._board.value, self._faults)
        self._board.set(replace(board, heard_at=heard_at))

    def _next_step(self) -> float:
        """When the loop must go round without news, on trio's clock."""
        now = trio.current_time()
        times = [now + self._interval]  # to see what is on the PCI bus
        for npu in self._board.value.chips:
            times.append(self._due[npu.name])
            change = self._faults.of(npu).next_change
            if change is not None:
                times.append(now + change - self._faults.now())
        return min(times)


def _address(npu: Chip) -> Address:
    return Address(npu.card_id, npu.device_id)


def _with_health(board: Board, faults: NodeFaults) -> Board:
    now = faults.now()
    return replace(
        board, chips=tuple(replace(npu, health=faults.of(npu).health(now)) for npu in board.chips)
    )
