"""Keep the Board true: each fault as it comes, each chip now and then, all chips when they change.

docs/architecture.md shows the tasks, and docs/internals/hardware.md says when a chip is read, and
what a reading decides.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final

import trio

from trio_npu_dra.ascend import port_faults
from trio_npu_dra.ascend.chip_faults import UNREAD_SECONDS
from trio_npu_dra.ascend.chip_network import read_addresses
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.types import FaultEvent
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.division_poll import DivisionPoll, read_division
from trio_npu_dra.ascend.fault_memory import SAVE_SECONDS, NodeFaults
from trio_npu_dra.ascend.health import read_chip, read_network
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.listing import Listing
from trio_npu_dra.ascend.model import EMPTY_BOARD, UNREAD_BOARD, Board, Chip, ChipNetwork
from trio_npu_dra.ascend.offers import not_offered
from trio_npu_dra.ascend.subscription import Subscription, WatchStatus
from trio_npu_dra.ascend.timer import Timer
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

_QUIET_INTERVALS: Final = 12  # between two readings of what answers and sends no event
_REST_SECONDS: Final = 0.05  # between two readings of a chip that events keep naming
_UNANSWERED: Final = HealthSample(unmonitored="no answer yet", pending=True)
_STUCK_SECONDS: Final = 120.0
_LISTING_STUCK_SECONDS: Final = 600.0  # a dozen calls a chip, each with a deadline of its own


@dataclass(eq=False, kw_only=True)
class BoardWatch:
    """Keeps *board* true.

    Attributes:
        worker: Runs the calls.
        dcmi: The library, not initialised yet.
        host: The node.
        board: Gets every Board that differs from the one before.
        interval: Seconds between two readings of a chip while the Ascend driver sends no events,
            of a chip that does not answer or has no RoCE port, of RoCE ports and of the PCI bus.
            Any other chip is read every twelfth time, as is the division.
        faults: Saved when they change.
        status: Kept up to date.
        division: Lets other tasks have the division read again: multi-die policy, vNPUs, shares.
        on_event: Called with each event that was not lost.
        listed: The Board without health.
        followed: The names of the chips that have a task.
        read: When each chip is read, by its name.
        heard_at: When the event came that a chip is read for, by its name.
        answered: The earliest of those since the last Board; None if there was none.
        changed_ports: The chips whose addresses are read in the next interval.
        portless: The chips that had no RoCE port when they were asked last.
    """

    worker: DcmiWorker
    dcmi: Dcmi
    host: Host
    board: Observable[Board]
    interval: float
    faults: NodeFaults = field(default_factory=partial(NodeFaults, None))
    status: Observable[WatchStatus] = field(default_factory=partial(Observable, WatchStatus()))
    division: DivisionPoll = field(default_factory=DivisionPoll)
    on_event: Callable[[FaultEvent], object] = lambda _: None

    def __post_init__(self) -> None:
        self.listed = EMPTY_BOARD
        self.followed: set[str] = set()
        self.read = defaultdict[str, Timer](partial(Timer, _REST_SECONDS))
        self.heard_at: dict[str, float] = {}
        self.answered: float | None = None
        self.changed_ports: set[str] = set()
        self.portless: set[str] = set()
        self.events, self.judgement, self.save = Timer(), Timer(), Timer(SAVE_SECONDS)
        self.may_lack_chip = trio.Event()
        self.listing = Listing(self.worker, self.dcmi, self.host, self.interval)
        self.subscription = Subscription(
            worker=self.worker,
            dcmi=self.dcmi,
            status=self.status,
            interval_seconds=self.interval,
            wake=self.events.set,
            on_start=self.want_all,  # no event came for what happened before
        )
        self.faults.on_release = self.judgement.set

    async def run(
        self,
        known: Board = EMPTY_BOARD,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep the Board true, until cancelled; once started, it has the node's chips.

        *known* are chips that an earlier process remembered: one that is missing now is gone.
        """
        await self.look(known)
        task_status.started()
        follow_division = partial(self.division.follow, self.host, looks=_QUIET_INTERVALS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.subscribe)
            nursery.start_soon(self.follow_events)
            nursery.start_soon(self.judge)
            nursery.start_soon(self.keep_saved)
            nursery.start_soon(self.follow_ports)
            nursery.start_soon(follow_division, self.read_division, self.interval)
            nursery.start_soon(self.keep_listed, nursery)

    async def look(self, known: Board = EMPTY_BOARD) -> None:
        """Wait until the library lists the cards, which the Board says, and read all chips once."""
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

    # --- the chips -------------------------------------------------------------------------------

    async def keep_listed(self, nursery: trio.Nursery) -> None:
        """Follow the chips of the list, and list again when one may be missing."""
        while True:
            for chip in self.listed.chips:
                if chip.name not in self.followed:
                    self.followed.add(chip.name)
                    nursery.start_soon(self.follow_chip, chip.name)
            self.listing.is_ahead = False
            self.events.set()
            self.may_lack_chip = trio.Event()
            await self.may_lack_chip.wait()
            before = self.listed
            with watchdog.step("listing NPUs", limit=_LISTING_STUCK_SECONDS):
                listed = await self.listing.read(before)
            if listed is not None:
                await self.read_listed(listed, since=before)
            self.want_all()  # no other reading was taken

    async def read_listed(self, listed: Board, *, since: Board) -> None:
        """Read all chips of a new list, which began when *since* was listed, and publish them."""
        for chip in listed.chips:
            self.take(chip, await self.sample(chip))
        while self.listed is not since:  # `read_division` came between, and is newer perhaps
            since = self.listed
            listed = await read_division(self.worker, self.dcmi, listed)
        self.listed = listed
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

    # --- the file --------------------------------------------------------------------------------

    async def keep_saved(self) -> None:
        """Save changes in a thread, once a second at most, and once more when cancelled."""
        try:
            while True:
                await self.save.wait()
                with watchdog.step("saving faults", limit=_STUCK_SECONDS):
                    await self.faults.save_apart()
        finally:
            self.faults.save()

    # --- one chip --------------------------------------------------------------------------------

    async def follow_chip(self, name: str) -> None:
        """Read a chip whenever that is due, until it is on the list no more."""
        while True:
            await self.read[name].wait()
            chip = self.listed.by_name.get(name)
            if chip is None:
                self.followed.remove(name)
                return
            self.faults.of(chip).note_due(self.faults.now())
            self.take_if_same(chip, await self.sample(chip))

    async def sample(self, chip: Chip) -> HealthSample:
        """Read a chip."""
        self.read[chip.name].fulfil()
        if chip.gone:
            return HealthSample(gone=True)
        if chip.unlisted:  # it would seem not to exist; the next list decides
            return HealthSample(unmonitored="the Ascend driver does not list it now")
        began = self.faults.now()
        reading = await read_chip(
            self.worker,
            self.dcmi,
            chip.ref,
            is_urgent=partial(self.heard_at.__contains__, chip.name),
            on_late=lambda late: self.take_if_same(chip, replace(late, began=began)),
        )
        return replace(reading, began=began)

    def take(self, chip: Chip, reading: HealthSample) -> None:
        """Take a reading of a chip, have it judged, and plan the next one."""
        faults, read = self.faults.of(chip), self.read[chip.name]
        faults.confirm_and_take(reading, self.faults.now())
        is_quick = not reading.is_whole or not self.subscription.is_active
        read.set(after=self.interval * (1 if is_quick else _QUIET_INTERVALS))
        if (heard_at := self.heard_at.get(chip.name)) is not None:
            self.answered = min(heard_at, self.answered or heard_at)
        if not reading.pending and faults.recheck_at is not None:
            read.set(after=faults.recheck_at - self.faults.now())
        elif not reading.pending and faults.unread_since is None:
            self.heard_at.pop(chip.name, None)
        self.judgement.set()

    def take_if_same(self, chip: Chip, reading: HealthSample) -> None:
        """Take a reading, unless a list is being made, or has been, that names the chip otherwise.

        Once the library is initialised, the chip's old name may be another chip's.
        """
        now = self.listed.by_name.get(chip.name)
        is_same = now is not None and (now.ref, now.is_listed) == (chip.ref, chip.is_listed)
        if now is not None and is_same and not self.may_lack_chip.is_set():
            self.take(now, reading)

    def want_all(self, *, after: float = 0.0) -> None:
        """Have all chips read."""
        for chip in self.listed.chips:
            self.read[chip.name].set(after=after)

    # --- events ----------------------------------------------------------------------------------

    async def follow_events(self) -> None:
        """Note events as they come, and have the chips read that they name.

        Those that come between `dcmi_init` and the new list have the numbers of that list.
        """
        while True:
            await self.events.wait()
            if not self.listing.is_ahead:
                self.take_events()

    def take_events(self) -> None:
        """Note the events that have come."""
        events, lost = self.subscription.take()
        by_logic_id = {chip.logic_id: chip for chip in self.listed.chips if chip.is_listed}
        for event in events:
            self.on_event(event)
            chip = by_logic_id.get(event.logic_id)
            if chip is not None:
                self.faults.of(chip).note(event, self.faults.now())
                self.heard_at.setdefault(chip.name, event.heard_at)
                if event.code == port_faults.ROCE_LINK_DOWN:
                    self.changed_ports.add(chip.name)
                self.read[chip.name].set()
                self.judgement.set(after=UNREAD_SECONDS)
        if lost:
            self.want_all()

    # --- RoCE ports ------------------------------------------------------------------------------

    async def follow_ports(self) -> None:
        """Ask each chip for its port in each interval, so that each gives a sign of life.

        One without a port may get one. Addresses are read when the port has changed, and now and
        then, because no event tells of a new one. On a dropped card a call blocks long.
        """
        for number in count():
            is_quiet = number % _QUIET_INTERVALS != 0
            for chip in self.listed.chips:
                if not chip.is_listed or self.faults.of(chip).is_gone:
                    continue
                is_known_portless = chip.name in self.portless and is_quiet
                if is_known_portless or not await self.ask_port(chip):
                    self.read[chip.name].set()
                elif chip.name in self.changed_ports or (number and not is_quiet):
                    self.changed_ports.discard(chip.name)
                    found = await read_addresses(self.worker, self.dcmi, self.host, chip)
                    self.take_addresses(chip, found)
            await trio.sleep(self.interval)

    async def ask_port(self, chip: Chip) -> bool:
        """Whether the port answers."""
        self.portless.discard(chip.name)
        try:
            problem = await read_network(
                self.worker, self.dcmi, chip.ref, on_late=partial(self.take_port, chip)
            )
        except DcmiError as error:  # the known state of the port stands
            if isinstance(error, NotSupported):
                self.portless.add(chip.name)
            log.debug("network health not read", extra={"npu": chip.name, "error": str(error)})
            return False
        self.take_port(chip, problem)
        return True

    def take_port(self, chip: Chip, problem: str) -> None:
        """Note the problem of a chip's port; empty if it has none."""
        faults = self.faults.of(chip)
        if problem != faults.network:
            faults.network = problem
            self.changed_ports.add(chip.name)
            self.judgement.set()

    def take_addresses(self, chip: Chip, network: ChipNetwork | None) -> None:
        """Publish the addresses of a chip's port."""
        known = self.listed.by_name.get(chip.name)
        if known is not None and known.ref == chip.ref and network != known.network:
            chips = [
                replace(one, network=network) if one is known else one for one in self.listed.chips
            ]
            self.listed = replace(self.listed, chips=tuple(chips))
            self.publish()

    # --- the Board -------------------------------------------------------------------------------

    async def judge(self) -> None:
        """Publish what readings and time bring, until cancelled; it never waits for the library."""
        while True:
            await self.judgement.wait()
            now = self.faults.now()
            for chip in self.listed.chips:
                if self.faults.of(chip).has_waited(now):
                    self.take(chip, _UNANSWERED)
            self.publish()
            if not self.faults.is_saved:
                self.save.set()
            is_chip_failing = any(
                chip.is_listed and self.faults.of(chip).has_failed_long(now)
                for chip in self.listed.chips
            )
            if not self.may_lack_chip.is_set() and self.listing.is_due(
                self.listed, is_chip_failing=is_chip_failing
            ):
                self.may_lack_chip.set()

    def publish(self) -> None:
        """Set the Board, log how it differs, and plan when it may change without a reading."""
        before, now = self.board.value, self.faults.now()
        after = replace(self.faults.judge(self.listed), heard_at=self.answered)
        self.answered = None
        if self.board.set(after):
            _log_changes(before, after)
            if port_faults.is_fresh_down(after, before):
                self.want_all(after=port_faults.READ_ALL_AFTER_SECONDS)
        changes = [self.faults.of(chip).next_change for chip in self.listed.chips]
        changes.append(port_faults.next_ub_change(self.board.value))
        pauses = [change - now for change in changes if change is not None]
        self.judgement.set(after=min([*pauses, self.interval]))  # or to check the PCI bus


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
