"""Keep the Board true: every fault at once, every chip now and then, all chips when they change.

The watcher reads a chip when a fault event names it, at most 20 times a second, and now and then in
any case, because events can be lost. An event says which chip to read; the reading decides, also if
it is late. Rules of the fault table that apply with time need no reading: it wakes for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from trio_npu_dra import pulse
from trio_npu_dra.errors import DcmiError
from trio_npu_dra.npu.changes import log_changes
from trio_npu_dra.npu.chip_faults import Reading
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.types import FaultEvent
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.fault_events import EventInbox
from trio_npu_dra.npu.fault_memory import SAVE_SECONDS, NodeFaults
from trio_npu_dra.npu.health import read_chip, read_network
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.listing import Listing, list_chips
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, Chip
from trio_npu_dra.npu.partition import Readings, read_partition
from trio_npu_dra.observable import Observable

log = logging.getLogger(__name__)

_REPAIR_INTERVALS: Final = 12  # between two readings of a chip that no event names
_REFUSED_INTERVALS: Final = 60  # until a refused subscription is tried again
_STUCK_SECONDS: Final = 120.0  # other calls, even `init`, may run before this one
_LISTING_STUCK_SECONDS: Final = 600.0  # a dozen calls a chip, each with a deadline of its own
_QUIET_SECONDS: Final = 0.05  # between two readings of a chip that events keep naming


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """How the watcher learns of faults, for people and metrics.

    Attributes:
        subscribed: Whether the Ascend driver sends events; if not, chips are read in turn.
        refusal: Why it sends none; empty if it does, or has not answered yet. The watcher tries
            again in time.
        lost: How many events were lost because the watcher was busy.
    """

    subscribed: bool = False
    refusal: str = ""
    lost: int = 0

    @property
    def answered(self) -> bool:
        """Whether the Ascend driver accepted or refused; all chips were read before."""
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
    known: Board = EMPTY_BOARD,
    splits: Readings | None = None,
    on_event: Callable[[FaultEvent], object] = lambda _: None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *board* true, without end; once started, it has the node's chips.

    Args:
        worker: Runs the calls of *dcmi*.
        dcmi: The library, not initialised yet.
        host: Its PCI bus shows cards that come and go.
        board: Gets every Board that differs from the one before.
        faults: What is known of the chips' faults; saved when it changes.
        status: Kept up to date.
        interval_seconds: Pause between two readings of a chip without events, of a chip that does
            not answer, of RoCE ports and of the PCI bus. A chip that is well and has events is read
            every twelfth time; so are policy, shares, and vNPUs that neither come nor go.
        known: The chips that an earlier process remembered: one that is missing now is gone.
        splits: By which others have it read how chips are split.
        on_event: Called with each event that was not lost.
        task_status: Started after the first Board is set.
    """
    watch = _Watch(
        worker,
        dcmi,
        host,
        board=board,
        faults=faults,
        status=status,
        interval=interval_seconds,
        splits=splits or Readings(),
        on_event=on_event,
    )
    await watch.at_start(known)
    log.info(
        "NPUs found",
        extra={"npus": len(board.value.chips), "ascend_driver": board.value.driver_version},
    )
    task_status.started()
    await watch.subscribe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.keep_asking_for_events)
        nursery.start_soon(watch.wake_on_release)
        nursery.start_soon(watch.follow_networks)
        nursery.start_soon(watch.follow_partition)
        nursery.start_soon(watch.keep_saved)
        await watch.run()


async def read_board(worker: DcmiWorker, dcmi: Dcmi, host: Host, faults: NodeFaults) -> Board:
    """Read all NPUs once.

    Raises:
        DcmiError: The library cannot list the cards.
    """
    found = await list_chips(worker, dcmi, host, EMPTY_BOARD)
    for chip in found.chips:
        reading = await read_chip(worker, dcmi, chip.ref)
        faults.of(chip).take(reading, faults.now())
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
        splits: Readings,
        on_event: Callable[[FaultEvent], object],
    ) -> None:
        self._worker, self._dcmi, self._host = worker, dcmi, host
        self._board, self._faults, self._status = board, faults, status
        self._found = EMPTY_BOARD  # as listed, without health
        self._interval, self._splits = interval, splits
        self._on_event = on_event
        self._listing = Listing(worker, dcmi, host, interval)
        self._inbox, self._news = EventInbox(self.wake), trio.Event()
        self._due: dict[str, float] = {}
        self._looked_at, self._heard_at = dict[str, float](), dict[str, float]()
        self._unsaved = trio.Event()

    # --- start -----------------------------------------------------------------------------------

    async def at_start(self, known: Board) -> None:
        """Wait until the library lists the cards, and read all chips."""
        found = await self._listing.read(known)
        while found is None:
            await trio.sleep_until(self._listing.retry_at)
            found = await self._listing.read(known)
        await self._look_at_all(found)

    async def subscribe(self) -> None:
        """Subscribe to events; without them chips are read in turn."""
        try:
            await self._worker.call(
                self._dcmi.subscribe, self._inbox.put, on_late=lambda _: self._be_subscribed()
            )
        except DcmiError as error:
            if self._status.value.subscribed:  # the answer to an earlier call came meanwhile
                return
            if self._status.set(replace(self._status.value, refusal=str(error))):
                log.warning(
                    "the Ascend driver does not tell of faults, chips are read in turn instead",
                    extra={"interval_s": self._interval, "error": str(error)},
                )
            return
        self._be_subscribed()

    def _be_subscribed(self) -> None:
        self._status.set(replace(self._status.value, subscribed=True, refusal=""))
        for chip in self._found.chips:
            self._want(chip)  # what happened since the first reading sent no event
        self.wake()

    async def keep_asking_for_events(self) -> None:
        """Subscribe again now and then until it works: the Ascend driver may have been busy."""
        while True:
            await trio.sleep(_REFUSED_INTERVALS * self._interval)
            if self._status.value.subscribed:  # also by an answer that came late
                return
            await self.subscribe()

    # --- what wakes the loop ---------------------------------------------------------------------

    def wake(self) -> None:
        """Wake the loop."""
        self._news.set()

    async def wake_on_release(self) -> None:
        """Publish a release."""
        while True:
            await self._faults.wait_released()
            self.wake()

    async def follow_networks(self) -> None:
        """Read the RoCE ports in a task of their own: on a dropped card the call blocks."""
        without: set[str] = set()
        while True:
            for chip in self._found.chips:
                faults = self._faults.of(chip)
                if chip.name in without or not chip.is_listed or faults.is_gone:
                    continue
                with pulse.step(f"asking for the network of {chip.name}", limit=_STUCK_SECONDS):
                    problem = await read_network(
                        self._worker,
                        self._dcmi,
                        chip.ref,
                        known=faults.network,
                        on_late=partial(self._take_network, chip),
                    )
                if problem is None:
                    without.add(chip.name)
                else:
                    self._take_network(chip, problem)
            await trio.sleep(self._interval)

    def _take_network(self, chip: Chip, problem: str) -> None:
        faults = self._faults.of(chip)
        if problem != faults.network:
            faults.network = problem
            self.wake()

    async def follow_partition(self) -> None:
        """Read policy, vNPUs and shares now and then, and when others want it."""
        await self._splits.follow(
            self._host, self._read_partition, self._interval, looks=_REPAIR_INTERVALS
        )

    async def _read_partition(self) -> None:
        found = None
        while found is not self._found:  # else a listing came between
            found = self._found
            with pulse.step("asking how chips are split", limit=_LISTING_STUCK_SECONDS):
                fresh = await read_partition(self._worker, self._dcmi, found)
        self._found = fresh
        self._tell()

    # --- the file --------------------------------------------------------------------------------

    async def keep_saved(self) -> None:
        """Save changes in a thread, once a second at most, and once more when cancelled."""
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
        """Read chips when they are due, without end."""
        while True:
            with trio.move_on_at(self._next_step()):
                await self._news.wait()
            self._news = trio.Event()
            self._take_events()
            await self._list_if_due()
            for chip in self._found.chips:
                if self._due[chip.name] <= trio.current_time():
                    reading = await self._look(chip)
                    self._tell(None if reading.pending else self._heard_of(chip))
            self._tell()
            self._note_unsaved()

    async def _list_if_due(self) -> None:
        if self._listing.is_due(self._found):
            with pulse.step("listing NPUs", limit=_LISTING_STUCK_SECONDS):
                found = await self._listing.read(self._found)
            if found is not None:
                await self._look_at_all(found)

    def _take_events(self) -> None:
        """Note events, and have the chips read that they name."""
        events, lost = self._inbox.take()
        by_logic_id = {chip.logic_id: chip for chip in self._found.chips if chip.is_listed}
        for event in events:
            self._on_event(event)
            chip = by_logic_id.get(event.logic_id)
            if chip is not None:
                self._faults.of(chip).note(event, self._faults.now())
                self._heard_at.setdefault(chip.name, event.heard_at)
                self._want(chip)
        if lost:
            log.warning(
                "fault events lost: every chip is read, but faults may have come more often than "
                "was counted",
                extra={"lost": lost},
            )
            for chip in self._found.chips:
                self._want(chip)
            status = self._status.value
            self._status.set(replace(status, lost=status.lost + lost))

    async def _look_at_all(self, found: Board) -> None:
        for chip in found.chips:
            await self._look(chip)
            self._heard_at.pop(chip.name, None)  # listing took longer than the event
        self._found = found
        self._tell()

    async def _look(self, chip: Chip) -> Reading:
        self._due.pop(chip.name, None)
        self._looked_at[chip.name] = trio.current_time()
        with pulse.step(f"looking at {chip.name}", limit=_STUCK_SECONDS):
            reading = await self._read(chip)
        self._take(chip, reading)
        return reading

    async def _read(self, chip: Chip) -> Reading:
        if chip.gone:
            return Reading(gone=True)
        if chip.unlisted:  # the library would say that it does not exist: its list again
            return Reading(unmonitored="the Ascend driver does not list it now")
        on_late = partial(self._take_late, chip)
        return await read_chip(self._worker, self._dcmi, chip.ref, on_late=on_late)

    def _take(self, chip: Chip, reading: Reading) -> None:
        """Take in what was read of a chip, and plan the next look at it."""
        faults = self._faults.of(chip)
        faults.take(reading, self._faults.now())
        is_quick = not reading.is_whole or not self._status.value.subscribed
        self._want(chip, after=self._interval * (1 if is_quick else _REPAIR_INTERVALS))
        if faults.recheck_at is not None and not reading.pending:
            self._want(chip, after=faults.recheck_at - self._faults.now())

    def _take_late(self, chip: Chip, reading: Reading) -> None:
        """Take in a reading that came after its deadline, unless its chip left or changed."""
        known = self._found.by_name.get(chip.name)
        if known is not None and known.ref == chip.ref and known.is_listed:
            self._due.pop(chip.name, None)
            self._take(known, reading)
            self.wake()

    def _want(self, chip: Chip, *, after: float = 0.0) -> None:
        """Have a chip read in *after* seconds, but never twice within `_QUIET_SECONDS`."""
        rested = self._looked_at[chip.name] + _QUIET_SECONDS
        at = max(trio.current_time() + after, rested)
        self._due[chip.name] = min(self._due.get(chip.name, at), at)

    def _heard_of(self, chip: Chip) -> float | None:
        """When the event arrived for which the chip was read, if no other reading must follow."""
        if self._faults.of(chip).recheck_at is not None:
            return self._heard_at.get(chip.name)
        return self._heard_at.pop(chip.name, None)

    def _tell(self, heard_at: float | None = None) -> None:
        before, after = self._board.value, _with_health(self._found, self._faults)
        if self._board.set(replace(after, heard_at=heard_at)):
            log_changes(before, after)

    def _next_step(self) -> float:
        """When the loop must go round without news, on trio's clock."""
        now = trio.current_time()
        times = [now + self._interval]  # to check the PCI bus
        for chip in self._found.chips:
            times.append(self._due[chip.name])
            change = self._faults.of(chip).next_change
            if change is not None:
                times.append(now + change - self._faults.now())
        return min(times)


def _with_health(board: Board, faults: NodeFaults) -> Board:
    """The Board with the health of its chips; one that reports that it does not exist is gone."""
    now = faults.now()
    known = ((chip, faults.of(chip)) for chip in board.chips)
    chips = (
        replace(chip, gone=chip.gone or its.is_gone, health=its.health(now)) for chip, its in known
    )
    return replace(board, chips=tuple(chips))
