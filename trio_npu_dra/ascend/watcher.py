"""Keep the Board true: each fault as it comes, each chip now and then, all chips when they change.

docs/internals/hardware.md says when a chip is read, and what a reading decides.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import trio

from trio_npu_dra.ascend import port_faults
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import FaultEvent
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.division_poll import DivisionPoll, read_division
from trio_npu_dra.ascend.fault_memory import SAVE_SECONDS, NodeFaults
from trio_npu_dra.ascend.health import read_chip
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.listing import Listing
from trio_npu_dra.ascend.model import EMPTY_BOARD, UNREAD_BOARD, Board, Chip, ChipNetwork
from trio_npu_dra.ascend.offers import not_offered
from trio_npu_dra.ascend.port_watch import PortWatch
from trio_npu_dra.ascend.read_schedule import QUIET_INTERVALS, ReadSchedule
from trio_npu_dra.ascend.subscription import Subscription, WatchStatus
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

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
    division: DivisionPoll | None = None,
    on_event: Callable[[FaultEvent], object] = lambda _: None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *board* true, until cancelled; once started, it has the node's chips.

    Args:
        worker: Runs the calls.
        dcmi: The library, not initialised yet.
        host: The node.
        board: Gets every Board that differs from the one before.
        faults: Saved when they change.
        status: Kept up to date.
        interval_seconds: Pause between two readings of a chip while the Ascend driver sends no
            events, of a chip that does not answer or has no RoCE port, of RoCE ports and of the
            PCI bus. Any other chip is read every twelfth time, as is the division.
        known: The chips that an earlier process remembered: one that is missing now is gone.
        division: Lets other tasks have the division read again: multi-die policy, vNPUs, shares.
        on_event: Called with each event that was not lost.
        task_status: Started after the first Board is set.
    """
    watch = _Watch(
        worker=worker,
        dcmi=dcmi,
        host=host,
        board=board,
        faults=faults,
        status=status,
        interval=interval_seconds,
        on_event=on_event,
    )
    await watch.at_start(known)
    task_status.started()
    follow = partial((division or DivisionPoll()).follow, host, looks=QUIET_INTERVALS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.subscribe)
        nursery.start_soon(watch.wake_on_release)
        nursery.start_soon(watch.ports.follow, interval_seconds)
        nursery.start_soon(follow, watch.read_division, interval_seconds)
        nursery.start_soon(watch.report_silence)
        nursery.start_soon(watch.keep_saved)
        await watch.run()


async def look_at_board(
    worker: DcmiWorker,
    dcmi: Dcmi,
    host: Host,
    *,
    board: Observable[Board],
    interval_seconds: float,
) -> None:
    """Look once at the node's chips, as `watch_board` does first; without a memory of faults."""
    watch = _Watch(
        worker=worker,
        dcmi=dcmi,
        host=host,
        board=board,
        faults=NodeFaults(None),
        status=Observable(WatchStatus()),
        interval=interval_seconds,
        on_event=lambda _: None,
    )
    await watch.at_start(EMPTY_BOARD)


@dataclass(eq=False, kw_only=True)
class _Watch:
    """The state of one `watch_board`; *listed* is the Board without health."""

    worker: DcmiWorker
    dcmi: Dcmi
    host: Host
    board: Observable[Board]
    faults: NodeFaults
    status: Observable[WatchStatus]
    interval: float
    on_event: Callable[[FaultEvent], object]
    listed: Board = EMPTY_BOARD
    news: trio.Event = field(default_factory=trio.Event)
    unsaved: trio.Event = field(default_factory=trio.Event)
    times: ReadSchedule = field(default_factory=ReadSchedule)
    heard_at: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.listing = Listing(self.worker, self.dcmi, self.host, self.interval)
        self.subscription = Subscription(
            worker=self.worker,
            dcmi=self.dcmi,
            status=self.status,
            interval_seconds=self.interval,
            wake=self.wake,
            on_start=self.read_all_again,
        )
        self.ports = PortWatch(
            worker=self.worker,
            dcmi=self.dcmi,
            host=self.host,
            faults=self.faults,
            chips=lambda: self.listed.chips,
            on_silence=self.read_soon,
            on_problem=self.wake,
            on_addresses=self.take_addresses,
        )

    async def at_start(self, known: Board) -> None:
        """Wait until the library lists the cards, which the Board says, and read all chips."""
        listed = await self.listing.read(known)
        while listed is None:
            why = f"the NPUs have not been read yet: {self.listing.failure}"
            self.board.set(replace(UNREAD_BOARD, unanswered=(why,)))
            await trio.sleep(self.interval)
            if self.listing.is_due(known):
                listed = await self.listing.read(known)
        await self.read_listed(listed, since=self.listed)

    async def subscribe(self) -> None:
        """Ask for events, once there are chips that can send some, until events come."""
        board = await self.board.wait_until(lambda board: bool(board.chips))
        found = {"npus": len(board.chips), "ascend_driver": board.driver_version}
        log.info("NPUs found", extra=found)
        await self.subscription.ask()
        await self.subscription.keep_asking()

    # --- what wakes the loop ---------------------------------------------------------------------

    def wake(self) -> None:
        """Wake the loop."""
        self.news.set()

    def read_all_again(self) -> None:
        """Read all chips: no event came for what happened before the subscription."""
        self.want_all()
        self.wake()

    async def wake_on_release(self) -> None:
        """Wake the loop, which publishes, when a chip was released."""
        while True:
            await self.faults.wait_released()
            self.wake()

    def read_soon(self, chip: Chip) -> None:
        """Have a chip read whose port does not answer."""
        self.times.want(chip.name)
        self.wake()

    def take_addresses(self, chip: Chip, network: ChipNetwork | None) -> None:
        """Publish the addresses of a chip's port."""
        known = self.still_listed(chip)
        if known is not None and network != known.network:
            chips = [
                replace(one, network=network) if one is known else one for one in self.listed.chips
            ]
            self.listed = replace(self.listed, chips=tuple(chips))
            self.publish()

    async def read_division(self) -> None:
        """Read the division of all chips, and publish it."""
        known = None
        while known is not self.listed:  # else a listing came between
            known = self.listed
            with watchdog.step("reading the division", limit=_LISTING_STUCK_SECONDS):
                fresh = await read_division(self.worker, self.dcmi, known)
        self.listed = fresh
        self.publish()

    async def report_silence(self) -> None:
        """Publish that chips do not answer, also while the loop waits for one of them."""
        while True:
            await trio.sleep(self.interval)
            self.mark_due()
            if any(self.faults.of(chip).is_due for chip in self.listed.chips):
                self.publish()

    def mark_due(self) -> None:
        """Note which chips are due: one that stays due for long is silent."""
        for chip in self.listed.chips:
            if self.times.is_due(chip.name):
                self.faults.of(chip).note_due(self.faults.now())

    # --- the file --------------------------------------------------------------------------------

    async def keep_saved(self) -> None:
        """Save changes in a thread, once a second at most, and once more when cancelled."""
        try:
            while True:
                await self.unsaved.wait()
                with watchdog.step("saving faults", limit=_STUCK_SECONDS):
                    await self.faults.save_apart()
                await trio.sleep(SAVE_SECONDS)
                self.unsaved = trio.Event()
                self.mark_unsaved()
        finally:
            self.faults.save()

    def mark_unsaved(self) -> None:
        """Have the file written if it lacks something."""
        if not self.faults.is_saved:
            self.unsaved.set()

    # --- the loop --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read chips when they are due, until cancelled."""
        while True:
            with trio.move_on_at(self.next_step()):
                await self.news.wait()
            self.news = trio.Event()
            self.take_events()
            self.mark_due()
            await self.list_if_due()
            done: set[str] = set()
            while (chip := self.next_due(done)) is not None:
                done.add(chip.name)
                reading = await self.sample(chip)
                self.publish(None if reading.pending else self.heard_of(chip))
                self.take_events()
            self.publish()
            self.mark_unsaved()

    def next_due(self, done: Collection[str]) -> Chip | None:
        """The next of the chips to read in this round, those first that an event names."""
        due = [chip for chip in self.listed.chips if self.times.is_due(chip.name)]
        left = (chip for chip in due if chip.name not in done)
        return min(left, key=lambda chip: chip.name not in self.heard_at, default=None)

    def next_step(self) -> float:
        """When the loop must go round without news, on trio's clock."""
        now = trio.current_time()
        times = [now + self.interval]  # to check the PCI bus
        changes = [port_faults.next_ub_change(self.board.value)]
        for chip in self.listed.chips:
            times.append(self.times.next_of(chip.name))
            changes.append(self.faults.of(chip).next_change)
        times += (now + change - self.faults.now() for change in changes if change is not None)
        return min(times)

    def take_events(self) -> None:
        """Note events, and have the chips read that they name."""
        events, lost = self.subscription.take()
        by_logic_id = {chip.logic_id: chip for chip in self.listed.chips if chip.is_listed}
        for event in events:
            self.on_event(event)
            chip = by_logic_id.get(event.logic_id)
            if chip is not None:
                self.faults.of(chip).note(event, self.faults.now())
                self.heard_at.setdefault(chip.name, event.heard_at)
                if event.code == port_faults.ROCE_LINK_DOWN:
                    self.ports.note_change(chip)
                self.times.want(chip.name)
        if lost:
            self.want_all()

    def want_all(self, *, after: float = 0.0) -> None:
        """Have all chips read."""
        for chip in self.listed.chips:
            self.times.want(chip.name, after=after)

    async def list_if_due(self) -> None:
        """List the cards if a chip may be missing, and then read all chips."""
        now, before = self.faults.now(), self.listed
        is_chip_failing = any(
            chip.is_listed and self.faults.of(chip).has_failed_long(now) for chip in before.chips
        )
        if self.listing.is_due(before, is_chip_failing=is_chip_failing):
            with watchdog.step("listing NPUs", limit=_LISTING_STUCK_SECONDS):
                listed = await self.listing.read(before)
            if listed is not None:
                await self.read_listed(listed, since=before)

    async def read_listed(self, listed: Board, *, since: Board) -> None:
        """Read all chips of a new list, which began when *since* was listed, and publish them."""
        for chip in listed.chips:
            await self.sample(chip)
            self.heard_at.pop(chip.name, None)  # it would count the time of the listing, too
        while self.listed is not since:  # `read_division` came between, and is newer perhaps
            since = self.listed
            listed = await read_division(self.worker, self.dcmi, listed)
        self.listed = listed
        self.publish()

    async def sample(self, chip: Chip) -> HealthSample:
        """Read a chip, and take the reading."""
        self.times.begin(chip.name)
        if chip.gone:
            reading = HealthSample(gone=True)
        elif chip.unlisted:  # it would seem not to exist; the next list decides
            reading = HealthSample(unmonitored="the Ascend driver does not list it now")
        else:
            on_late = partial(self.take_late, chip)
            with watchdog.step(f"looking at {chip.name}", limit=_STUCK_SECONDS):
                reading = await read_chip(self.worker, self.dcmi, chip.ref, on_late=on_late)
        self.take(chip, reading)
        return reading

    def take(self, chip: Chip, reading: HealthSample) -> None:
        """Take a reading of a chip, and plan the next one."""
        faults = self.faults.of(chip)
        faults.confirm_and_take(reading, self.faults.now())
        is_quick = not reading.is_whole or not self.subscription.is_active
        pause = self.interval * (1 if is_quick else QUIET_INTERVALS)
        self.times.want(chip.name, after=pause)
        if faults.recheck_at is not None and not reading.pending:
            self.times.want(chip.name, after=faults.recheck_at - self.faults.now())

    def take_late(self, chip: Chip, reading: HealthSample) -> None:
        """Take a reading that came after its deadline, unless its chip left or changed."""
        known = self.still_listed(chip)
        if known is not None:
            self.times.forget(chip.name)
            self.take(known, reading)
            self.wake()

    def still_listed(self, chip: Chip) -> Chip | None:
        """The chip with its present facts; None if it left or changed meanwhile."""
        known = self.listed.by_name.get(chip.name)
        return known if known is not None and known.ref == chip.ref and known.is_listed else None

    def heard_of(self, chip: Chip) -> float | None:
        """When the event for the reading came; kept while another reading must follow."""
        if self.faults.of(chip).recheck_at is not None:
            return self.heard_at.get(chip.name)
        return self.heard_at.pop(chip.name, None)

    def publish(self, heard_at: float | None = None) -> None:
        """Set the Board, and log how it differs."""
        before = self.board.value
        after = self.faults.judge(self.listed)
        if self.board.set(replace(after, heard_at=heard_at)):
            _log_changes(before, after)
            if port_faults.is_fresh_down(after, before):
                self.want_all(after=port_faults.READ_ALL_AFTER_SECONDS)


def _log_changes(before: Board, after: Board) -> None:
    """Log which chips left, came back, were split or are not offered; Events tell their health."""
    for chip in after.chips:
        known = before.by_name.get(chip.name)
        fields = {"npu": chip.name, "chip": str(chip.ref)}
        if chip.gone and not (known is not None and known.gone):
            log.warning("NPU is gone", extra=fields)
        elif not chip.gone and known is not None and known.gone:
            log.info("NPU is there again", extra=fields)
        if known is not None and chip.network != known.network:
            log.info("NPU has another address", extra={"npu": chip.name, "network": chip.network})
        if chip.vnpus != (known.vnpus if known is not None else ()):
            log.info("NPU is split", extra={"npu": chip.name, "vnpus": list(chip.vnpus)})
    hidden, was_hidden = not_offered(after), not_offered(before)
    for name, why in hidden.items():
        if was_hidden.get(name) != why:
            log.warning("NPU is not offered", extra={"npu": name, "why": why})
    for name in was_hidden.keys() - hidden.keys():
        log.info("NPU is offered again", extra={"npu": name})
