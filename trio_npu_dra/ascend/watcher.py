"""Keep the Board true: every fault at once, every chip now and then, all chips when they change.

The watcher reads a chip when a fault event names it, at most 20 times a second, and now and then in
any case, because events can be lost. An event says which chip to read; the reading decides, also if
it is late. Rules of the fault table that apply with time need no reading: it wakes for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

import trio

from trio_npu_dra.ascend import port_faults
from trio_npu_dra.ascend.agreement import APART
from trio_npu_dra.ascend.changes import log_changes
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import FaultEvent
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.division_poll import DivisionPoll, read_partition
from trio_npu_dra.ascend.fault_memory import SAVE_SECONDS, NodeFaults
from trio_npu_dra.ascend.health import read_chip, read_network
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.listing import Listing, list_chips
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, Chip
from trio_npu_dra.ascend.read_schedule import ReadSchedule
from trio_npu_dra.ascend.subscription import Subscription, WatchStatus
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import DcmiError, NotSupported
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

_REPAIR_INTERVALS: Final = 12  # between two readings of a chip that no event names
_STUCK_SECONDS: Final = 120.0  # other calls, even `init`, may run before this one
_LISTING_STUCK_SECONDS: Final = 600.0  # a dozen calls a chip, each with a deadline of its own


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
    splits: DivisionPoll | None = None,
    on_event: Callable[[FaultEvent], object] = lambda _: None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *board* true, until cancelled; once started, it has the node's chips.

    Args:
        worker: Runs the calls of *dcmi*.
        dcmi: The library, not initialised yet.
        host: Its PCI bus shows cards that come and go.
        board: Gets every Board that differs from the one before.
        faults: What is known of the chips' faults; saved when it changes.
        status: Kept up to date.
        interval_seconds: Pause between two readings of a chip without events, of a chip that does
            not answer, of RoCE ports and of the PCI bus. A chip that is well and has events and a
            RoCE port is read every twelfth time, as are policy, shares and known vNPUs.
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
        splits=splits or DivisionPoll(),
        on_event=on_event,
    )
    await watch.at_start(known)
    log.info(
        "NPUs found",
        extra={"npus": len(board.value.chips), "ascend_driver": board.value.driver_version},
    )
    task_status.started()
    await watch.subscription.ask()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.subscription.keep_asking)
        nursery.start_soon(watch.wake_on_release)
        nursery.start_soon(watch.follow_networks)
        nursery.start_soon(watch.follow_partition)
        nursery.start_soon(watch.report_silence)
        nursery.start_soon(watch.keep_saved)
        await watch.run()


async def read_board(worker: DcmiWorker, dcmi: Dcmi, host: Host, faults: NodeFaults) -> Board:
    """Read all NPUs once, and those a second time of which one reading is not enough to be sure.

    Raises:
        DcmiError: The library cannot list the cards.
    """
    found = await list_chips(worker, dcmi, host, EMPTY_BOARD)
    due: Sequence[Chip] = found.chips
    for pause in (0.0, APART):
        await trio.sleep(pause if due else 0.0)
        for chip in due:
            reading = await read_chip(worker, dcmi, chip.ref)
            faults.of(chip).see(reading, faults.now())
        due = [chip for chip in due if faults.of(chip).recheck_at is not None]
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
        splits: DivisionPoll,
        on_event: Callable[[FaultEvent], object],
    ) -> None:
        self._worker, self._dcmi, self._host = worker, dcmi, host
        self._board, self._faults, self._status = board, faults, status
        self._found = EMPTY_BOARD  # as listed, without health
        self._interval, self._splits = interval, splits
        self._on_event = on_event
        self._listing = Listing(worker, dcmi, host, interval)
        self._news = trio.Event()
        self._times = ReadSchedule()
        self._heard_at: dict[str, float] = {}
        self._unsaved = trio.Event()
        self.subscription = Subscription(
            worker,
            dcmi,
            status=status,
            interval_seconds=interval,
            wake=self.wake,
            on_start=self._read_all_anew,
        )

    async def at_start(self, known: Board) -> None:
        """Wait until the library lists the cards, and read all chips."""
        found = await self._listing.read(known)
        while found is None:
            await trio.sleep_until(self._listing.retry_at)
            found = await self._listing.read(known)
        await self._look_at_all(found, since=self._found)

    def _read_all_anew(self) -> None:
        """Read what happened since the first reading, which sent no event."""
        self._want_all()
        self.wake()

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
        """Ask each chip for its RoCE port, in a task of their own: on a dropped card that blocks.

        A chip that does not answer, or has no port, is read: so each chip gives a sign of life in
        each interval. One without a port may get one.
        """
        without: set[str] = set()
        for number in count():
            for chip in self._found.chips:
                if not chip.is_listed or self._faults.of(chip).is_gone:
                    continue
                is_known_without = chip.name in without and number % _REPAIR_INTERVALS
                if is_known_without or not await self._ask_for_network(chip, without):
                    self._times.want(chip.name)
                    self.wake()
            await trio.sleep(self._interval)

    async def _ask_for_network(self, chip: Chip, without: set[str]) -> bool:
        """Whether the chip answers; noted in *without* if it has no port."""
        on_late = partial(self._take_network, chip)
        without.discard(chip.name)
        try:
            with watchdog.step(f"asking for the network of {chip.name}", limit=_STUCK_SECONDS):
                problem = await read_network(self._worker, self._dcmi, chip.ref, on_late=on_late)
        except DcmiError as error:  # what is known of the port stands
            if isinstance(error, NotSupported):
                without.add(chip.name)
            log.debug("network health not read", extra={"npu": chip.name, "error": str(error)})
            return False
        self._take_network(chip, problem)
        return True

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
            with watchdog.step("asking how chips are split", limit=_LISTING_STUCK_SECONDS):
                fresh = await read_partition(self._worker, self._dcmi, found)
        self._found = fresh
        self._publish()

    async def report_silence(self) -> None:
        """Tell of chips that do not answer, also while the loop waits for one of them."""
        while True:
            await trio.sleep(self._interval)
            self._mark_asked()
            if any(self._faults.of(chip).is_asked for chip in self._found.chips):
                self._publish()

    def _mark_asked(self) -> None:
        """Note since when an answer is due of the chips that are to be read."""
        for chip in self._found.chips:
            if self._times.is_due(chip.name):
                self._faults.of(chip).ask(self._faults.now())

    # --- the file --------------------------------------------------------------------------------

    async def keep_saved(self) -> None:
        """Save changes in a thread, once a second at most, and once more when cancelled."""
        try:
            while True:
                await self._unsaved.wait()
                with watchdog.step("saving faults", limit=_STUCK_SECONDS):
                    await self._faults.save_apart()
                await trio.sleep(SAVE_SECONDS)
                self._unsaved = trio.Event()
                self._mark_unsaved()
        finally:
            self._faults.save()

    def _mark_unsaved(self) -> None:
        if not self._faults.is_saved:
            self._unsaved.set()

    # --- the loop --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read chips when they are due, until cancelled."""
        while True:
            with trio.move_on_at(self._next_step()):
                await self._news.wait()
            self._news = trio.Event()
            self._take_events()
            self._mark_asked()
            await self._list_if_due()
            for chip in self._found.chips:
                if self._times.is_due(chip.name):
                    reading = await self._sample(chip)
                    self._publish(None if reading.pending else self._heard_of(chip))
            self._publish()
            self._mark_unsaved()

    async def _list_if_due(self) -> None:
        now, chips = self._faults.now(), self._found.chips
        is_chip_lost = any(chip.is_listed and self._faults.of(chip).is_lost(now) for chip in chips)
        if self._listing.is_due(self._found, is_chip_lost=is_chip_lost):
            before = self._found
            with watchdog.step("listing NPUs", limit=_LISTING_STUCK_SECONDS):
                found = await self._listing.read(before)
            if found is not None:
                await self._look_at_all(found, since=before)

    def _take_events(self) -> None:
        """Note events, and have the chips read that they name."""
        events, lost = self.subscription.take()
        by_logic_id = {chip.logic_id: chip for chip in self._found.chips if chip.is_listed}
        for event in events:
            self._on_event(event)
            chip = by_logic_id.get(event.logic_id)
            if chip is not None:
                self._faults.of(chip).note(event, self._faults.now())
                self._heard_at.setdefault(chip.name, event.heard_at)
                self._times.want(chip.name)
        if lost:
            self._want_all()

    def _want_all(self, *, after: float = 0.0) -> None:
        for chip in self._found.chips:
            self._times.want(chip.name, after=after)

    async def _look_at_all(self, found: Board, *, since: Board) -> None:
        """Look at all chips of a new list, and tell.

        Args:
            found: The list.
            since: What was found before it was read.
        """
        for chip in found.chips:
            await self._sample(chip)
            self._heard_at.pop(chip.name, None)  # listing took longer than the event
        while self._found is not since:  # how chips are split was read meanwhile, perhaps later
            since = self._found
            found = await read_partition(self._worker, self._dcmi, found)
        self._found = found
        self._publish()

    async def _sample(self, chip: Chip) -> HealthSample:
        self._times.begin(chip.name)
        with watchdog.step(f"looking at {chip.name}", limit=_STUCK_SECONDS):
            reading = await self._read(chip)
        self._take(chip, reading)
        return reading

    async def _read(self, chip: Chip) -> HealthSample:
        if chip.gone:
            return HealthSample(gone=True)
        if chip.unlisted:  # the library would say that it does not exist: its list again
            return HealthSample(unmonitored="the Ascend driver does not list it now")
        on_late = partial(self._take_late, chip)
        return await read_chip(self._worker, self._dcmi, chip.ref, on_late=on_late)

    def _take(self, chip: Chip, reading: HealthSample) -> None:
        """Take in what was read of a chip, and plan the next look at it."""
        faults = self._faults.of(chip)
        faults.see(reading, self._faults.now())
        is_quick = not reading.is_whole or not self.subscription.is_active
        pause = self._interval * (1 if is_quick else _REPAIR_INTERVALS)
        self._times.want(chip.name, after=pause)
        if faults.recheck_at is not None and not reading.pending:
            self._times.want(chip.name, after=faults.recheck_at - self._faults.now())

    def _take_late(self, chip: Chip, reading: HealthSample) -> None:
        """Take in a reading that came after its deadline, unless its chip left or changed."""
        known = self._found.by_name.get(chip.name)
        if known is not None and known.ref == chip.ref and known.is_listed:
            self._times.forget(chip.name)
            self._take(known, reading)
            self.wake()

    def _heard_of(self, chip: Chip) -> float | None:
        """When the event arrived for which the chip was read, if no other reading must follow."""
        if self._faults.of(chip).recheck_at is not None:
            return self._heard_at.get(chip.name)
        return self._heard_at.pop(chip.name, None)

    def _publish(self, heard_at: float | None = None) -> None:
        before = self._board.value
        after = _with_health(self._found, self._faults)
        if self._board.set(replace(after, heard_at=heard_at)):
            log_changes(before, after)
            if port_faults.are_fresh(after, before):
                self._want_all(after=port_faults.OTHERS_SECONDS)

    def _next_step(self) -> float:
        """When the loop must go round without news, on trio's clock."""
        now = trio.current_time()
        times = [now + self._interval]  # to check the PCI bus
        changes = [port_faults.next_ub_change(self._board.value)]
        for chip in self._found.chips:
            times.append(self._times.next_of(chip.name))
            changes.append(self._faults.of(chip).next_change)
        times += (now + change - self._faults.now() for change in changes if change is not None)
        return min(times)


def _with_health(board: Board, faults: NodeFaults) -> Board:
    """The Board with the health of its chips; one that reports that it does not exist is gone."""
    now = faults.now()
    known = [(chip, faults.of(chip)) for chip in board.chips]
    chips = tuple(
        replace(chip, gone=chip.gone or its.is_gone, health=its.health(now)) for chip, its in known
    )
    judged = {chip.name: its.derived(port_faults.UB_PORT_DOWN) for chip, its in known}
    after = port_faults.with_ub_faults(replace(board, chips=chips), judged, now)
    for chip, (_, its) in zip(after.chips, known, strict=True):
        its.derive(port_faults.UB_PORT_DOWN, port_faults.ub_code(chip))
    return after
