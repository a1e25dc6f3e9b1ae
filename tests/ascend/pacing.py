"""A watcher whose clock stands still until the test moves it, and the calls that it makes."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import trio
from trio.testing import MockClock

from dev.rig.looking import Relay
from dev.rig.waiting import HANG_SECONDS
from tests.ascend.watching import Watching
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.types import Assertion, ChipRef, FaultEvent
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board, ChipHealth

NODE: Final = -1
"""As the chip: a call that is about none."""


class Counted(Dcmi):
    """A library that counts calls, and holds them up or fails as tests want it.

    Attributes:
        asked: How often, by a word for the call and the card.
        held: Calls wait for these, by the same word, or by it and the card.
        waiting: How many calls have come to one of these.
        inside: Those that are still there.
        handler: Takes events; tests may call it.
        before_subscription: Called then.
        lost: The error with which it answers about a card, until it is initialised again.
        stays_lost: Whether initialising does not help.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: Counter[tuple[str, int]] = Counter()
        self.held: dict[str | tuple[str, int], threading.Event] = {}
        self.waiting = 0
        self.inside: list[object] = []
        self.handler: Callable[[FaultEvent], None] = lambda _: None
        self.before_subscription: Callable[[], object] = lambda: None
        self.lost: dict[int, DcmiError] = {}
        self.stays_lost = False

    def _count(self, what: str, card: int) -> None:
        self.asked[what, card] += 1
        gate = self.held.get(what) or self.held.get((what, card))
        if gate is not None:
            call = object()
            self.waiting += 1
            self.inside.append(call)
            gate.wait()
            self.inside.remove(call)

    def init(self) -> None:
        """Count it."""
        self._count("init", NODE)
        if not self.stays_lost:
            self.lost.clear()
        super().init()

    def subscribe(self, handler: Callable[[FaultEvent], None]) -> None:
        """Count it."""
        self._count("subscribe", NODE)
        self.before_subscription()
        self.handler = handler
        super().subscribe(handler)

    def health(self, address: ChipRef) -> int:
        """Count it, or fail."""
        self._count("health", address.ids[0])
        if error := self.lost.get(address.ids[0]):
            raise error
        return super().health(address)

    def boot_status(self, chip: ChipRef) -> int:
        """Fail, perhaps."""
        if error := self.lost.get(chip.ids[0]):
            raise error
        return super().boot_status(chip)

    def network_health(self, address: ChipRef) -> int:
        """Count it."""
        self._count("network", address.ids[0])
        return super().network_health(address)


class Remembered(NodeFaults):
    """The history of faults, by the test's clock.

    Attributes:
        is_saving: Whether a save goes on.
        looked_up: How often code asked for the time, as each round of the watcher does.
        saves: How often `save_apart` was called.
        slow: Each save waits for it.
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder, clock=self._time)
        self.looked_up = 0
        self.saves = 0
        self.is_saving = False
        self.slow = trio.Event()
        self.slow.set()

    def _time(self) -> float:
        self.looked_up += 1
        return 1e9 + trio.current_time()

    async def save_apart(self) -> None:
        """Count it."""
        self.saves += 1
        self.is_saving = True
        await self.slow.wait()
        await super().save_apart()
        self.is_saving = False


class Paced:
    """A watcher of cards 0 to 7, and the test's clock by which it looks."""

    def __init__(
        self,
        nursery: trio.Nursery,
        relay: Relay,
        dcmi: Counted,
        host: Host,
        folder: Path,
    ) -> None:
        self.dcmi = dcmi
        self.faults = Remembered(folder)
        self.watching = Watching(nursery, relay, dcmi, host)
        self.watching.faults = self.faults
        self.watching.interval = 10.0
        self.watching.patience = math.inf  # by the test's clock
        self._clock: MockClock | None = None
        self._nursery = nursery
        self._relay = relay

    def begin(self, clock: MockClock) -> None:
        """Have it started by this clock, the test's."""
        self._clock = clock
        self._nursery.start_soon(self.watching.start)

    async def start(self, clock: MockClock) -> None:
        """Start it, and let it do what is due."""
        self.begin(clock)
        await self.settle()
        assert self.watching.status.value.answered

    async def settle(self) -> None:
        """Let all tasks do what is due now.

        Raises:
            AssertionError: A task does not rest.
        """
        done: object = None

        def rests() -> bool:
            nonlocal done
            before, done = done, self._done()
            return done == before and not self._is_at_work

        await _until(rests, "a task does not rest")

    def _done(self) -> tuple[object, ...]:
        """What differs as soon as a task begins or ends a call or a round."""
        return len(self._relay.devices), self.faults.looked_up, self._is_at_work

    @property
    def _is_at_work(self) -> bool:
        is_saving = self.faults.is_saving and self.faults.slow.is_set()
        is_held = len(self.dcmi.inside) > self._relay.written_off  # the others wait in line for it
        return (self._relay.out > 0 and not is_held) or is_saving

    async def jump(self, seconds: float) -> None:
        """Let so much time pass, and all tasks do what is due then."""
        assert self._clock is not None
        self._clock.jump(seconds)
        await self.settle()

    async def jump_into(self, seconds: float, *calls: str | tuple[str, int]) -> None:
        """Let so much time pass, and wait for one of these calls, which do not return."""
        assert self._clock is not None
        self.dcmi.held = {call: threading.Event() for call in calls}
        before = self.dcmi.waiting
        self._clock.jump(seconds)
        await _until(lambda: self.dcmi.waiting > before, "no task calls")

    async def let_go(self) -> None:
        """Let held calls return, and wait for them and what follows."""
        held, self.dcmi.held = self.dcmi.held, {}
        for gate in held.values():
            gate.set()
        await _until(lambda: not self._relay.written_off, "a call does not return")
        await self.settle()

    async def tell(
        self,
        logic_id: int,
        code: int = 0,
        assertion: Assertion = Assertion.NOTICE,
        heard_at: float = 0.0,
    ) -> None:
        """Have the driver send an event without its fault, or ahead of it."""
        event = FaultEvent(
            logic_id=logic_id,
            code=code,
            severity=None,
            assertion=assertion,
            raised_at=0.0,
            heard_at=heard_at,
        )
        self.dcmi.handler(event)
        await self.settle()

    async def announce(self, logic_id: int, code: int) -> None:
        """Have the driver announce a fault; no time passes."""
        await self.tell(logic_id, code, Assertion.OCCURRENCE, heard_at=5.0)

    @property
    def board(self) -> Board:
        """The newest Board."""
        return self.watching.board.value

    def health(self, number: int) -> ChipHealth:
        """The health of an NPU."""
        return self.board.by_name[f"npu-{number}"].health

    def codes(self, number: int) -> list[int]:
        """The faults of an NPU."""
        return [fault.code for fault in self.health(number).faults]

    def asked(self, what: str) -> list[int]:
        """How often each card was asked for it."""
        return [self.dcmi.asked[what, card] for card in range(8)]


async def _until(is_true: Callable[[], bool], problem: str) -> None:
    """Let other tasks and threads work until it is true; the test's clock stands still meanwhile.

    Raises:
        AssertionError: With *problem*, after a minute of the machine's clock.
    """
    end = time.monotonic() + HANG_SECONDS
    while not is_true():
        if time.monotonic() > end:
            raise AssertionError(problem)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        await trio.to_thread.run_sync(time.sleep, 0.0005)
