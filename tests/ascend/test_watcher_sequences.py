r"""Whatever happens to chips and to the watcher: in the end the Board is that of a fresh read.

The board is simulated, its library real; faults come and go, events are ahead of the list of codes
or behind it or without a fault, calls fail, chips drop and return, and watchers end and begin,
in sequences that hypothesis makes up. A model says how often each fault came. With
`--hypothesis-profile=full` the sequences are more, and longer. This looks for new ones, about eight
minutes on two cores:

    just test tests/ascend/test_watcher_sequences.py --hypothesis-profile=long \
        -o faulthandler_timeout=7200
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import NotSupported
from trio_npu_dra.ascend.dcmi.types import FaultEvent
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, Chip, FaultLevel
from trio_npu_dra.ascend.single_look import read_board
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.ascend.watcher import BoardWatch
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.lab.simulator import Assertion, BoardControl, Severity, SimulatedBoard

SEVERITIES: Final = {
    0x80CD8003: Severity.MINOR,  # NotHandle
    0x81B38002: Severity.MAJOR,  # RestartBusiness
    0x80E01801: Severity.MAJOR,  # RestartBusiness, twice a day: separated by hand
    0x81078603: Severity.MINOR,  # NotHandle, five times a day: separated by hand
    0x12345678: Severity.CRITICAL,  # not in the table
}
CHIPS: Final = (2, 5)
TWICE: Final = 0x80E01801
LINK: Final = 0x81078603
CALLS: Final = ("dcmi_get_device_health", "dcmi_get_device_errorcode_v2")

Step: TypeAlias = Callable[["Play"], None]


class Shared(Dcmi):
    """A library of which many watchers share the one subscription: the last one gets the events."""

    handler: Callable[[FaultEvent], None] | None = None
    has_events = True

    def subscribe(self, handler: Callable[[FaultEvent], None]) -> None:
        """Call *handler* from now on, and no other."""
        if not self.has_events:
            raise NotSupported(-8255, "dcmi_subscribe_fault_event", "not here")
        is_first, self.handler = self.handler is None, handler
        if is_first:
            super().subscribe(lambda event: self.handler(event) if self.handler else None)


class Counts:
    """The model: how often the code came on a chip that is separated at the second time.

    Attributes:
        real: How often it came.
        doubtful: How often a watcher may have counted it besides.
        is_exact: Whether no watcher can have missed it.
    """

    def __init__(self) -> None:
        self.real = self.doubtful = 0
        self.is_exact = True

    def allows(self, *, separated: bool) -> bool:
        """Whether the chip may be separated, or may not be."""
        if separated:
            return self.real + self.doubtful >= 2
        return not self.is_exact or self.real < 2


class Play:
    """Takes the steps of a sequence: chips change now, the watcher when it is next awaited."""

    def __init__(self, control: BoardControl, *, has_events: bool) -> None:
        self.control = control
        self.is_watched = True
        self._listed: dict[int, set[int]] = {chip: set() for chip in CHIPS}
        self._rest: dict[tuple[int, int], Callable[[int, int, Severity], object]] = {}
        self._away: set[int] = set()
        for chip in CHIPS:
            self._clear(chip)
        self.counts = {chip: Counts() for chip in CHIPS}
        for counts in self.counts.values():
            counts.is_exact = has_events

    def turn(self, chip: int, code: int) -> None:
        """A fault comes, or goes; an event says so."""
        self._finish(chip, code)
        if code in self._listed[chip]:
            self._listed[chip].discard(code)
            self.control.clear_fault(chip, code)
        else:
            self._begin(chip, code)
            self.control.add_fault(chip, code, SEVERITIES[code])

    def half(self, chip: int, code: int, *, is_told: bool) -> None:
        """A fault comes: its event is ahead of the list, or the list ahead of the event."""
        self._finish(chip, code)
        if code not in self._listed[chip]:
            self._begin(chip, code)
            tell = partial(self.control.emit_event, assertion=Assertion.OCCURRENCE)
            halves = self.control.list_fault, tell
            first, rest = reversed(halves) if is_told else halves
            first(chip, code, SEVERITIES[code])
            self._rest[chip, code] = rest

    def say(self, chip: int, code: int, assertion: Assertion) -> None:
        """An event without its fault, or ahead of it."""
        if code == TWICE:
            self.counts[chip].doubtful += 1
            self.counts[chip].is_exact = False
        self.control.emit_event(chip, code, SEVERITIES[code], assertion)

    def fail(self, chip: int, function: str, code: int) -> None:
        """A call about a chip fails, or (0) does so no more."""
        if code:
            self.control.set_return_code(function, code, chip)
        else:
            self.control.release(function, chip)

    def leave(self, chip: int, how: str) -> None:
        """A chip drops off the bus, or boots."""
        self._away.add(chip)
        getattr(self.control, how)(chip)

    def back(self, chip: int) -> None:
        """A chip is there without faults; no event says so."""
        self.counts[chip].is_exact = False
        self._clear(chip)

    def watch(self, *, on: bool) -> None:
        """The watcher ends, or there is one again."""
        if on != self.is_watched:
            for counts in self.counts.values():
                counts.doubtful += 1  # the event to one, the list to the other
                counts.is_exact = False
        self.is_watched = on

    def end(self) -> None:
        """All chips can be read, and a watcher runs."""
        for chip, code in list(self._rest):
            self._finish(chip, code)
        for chip in list(self._away):
            self.back(chip)
        for chip in CHIPS:
            for function in CALLS:
                self.fail(chip, function, 0)
        self.watch(on=True)

    def allows(self, board: Board) -> bool:
        """Whether the chips are separated that must be, and no others."""
        separated = {
            chip: {
                fault.code
                for fault in board.by_name[f"npu-{chip}"].health.faults
                if fault.level is FaultLevel.MANUALLY_SEPARATE_NPU
            }
            for chip in CHIPS
        }
        return all(
            codes <= {TWICE} and self.counts[chip].allows(separated=TWICE in codes)
            for chip, codes in separated.items()
        )

    def _begin(self, chip: int, code: int) -> None:
        self._listed[chip].add(code)
        self.counts[chip].real += code == TWICE

    def _finish(self, chip: int, code: int) -> None:
        rest = self._rest.pop((chip, code), None)
        if rest is not None:
            rest(chip, code, SEVERITIES[code])

    def _clear(self, chip: int) -> None:
        self._away.discard(chip)
        self._listed[chip].clear()
        self._rest = {place: rest for place, rest in self._rest.items() if place[0] != chip}
        self.control.restore(chip)


chips = st.sampled_from(CHIPS)
codes = st.sampled_from(list(SEVERITIES))
steps = st.one_of(
    st.builds(partial, st.just(Play.turn), chip=chips, code=codes),
    st.builds(
        partial, st.just(Play.say), chip=chips, code=codes, assertion=st.sampled_from(Assertion)
    ),
    st.builds(partial, st.just(Play.half), chip=chips, code=codes, is_told=st.booleans()),
    st.builds(
        partial,
        st.just(Play.fail),
        chip=chips,
        function=st.sampled_from(CALLS),
        code=st.sampled_from([0, 0, -8005, -8012]),
    ),
    st.builds(
        partial,
        st.just(Play.leave),
        chip=chips,
        how=st.sampled_from(["set_gone", "set_booting", "set_silent"]),
    ),
    st.builds(partial, st.just(Play.back), chip=chips),
    st.builds(partial, st.just(Play.watch), on=st.booleans()),
)
counted = st.sampled_from([TWICE, LINK])
turns = st.one_of(
    st.builds(partial, st.just(Play.turn), chip=chips, code=counted),
    st.builds(partial, st.just(Play.half), chip=chips, code=counted, is_told=st.booleans()),
)


def sequences() -> st.SearchStrategy[list[tuple[Step, float]]]:
    """Anything, or codes that come and go and nothing else, so that the model is exact."""
    pauses = st.sampled_from([0.0, 0.005, 0.03])
    few, many = (0, 25) if settings().max_examples <= 20 else (20, 100)
    return st.lists(st.tuples(steps, pauses), min_size=few, max_size=many) | st.lists(
        st.tuples(turns, pauses), min_size=few, max_size=many
    )


class Watchers:
    """One watcher after another, on the same node with the same file of faults."""

    def __init__(self, worker: DcmiWorker, dcmi: Dcmi, host: Host, folder: Path) -> None:
        self.board = Observable(EMPTY_BOARD)
        self._hardware = worker, dcmi, host
        self._folder = folder
        self._scope: trio.CancelScope | None = None

    async def be(self, nursery: trio.Nursery, *, on: bool) -> None:
        """Have one, or none."""
        if on and self._scope is None:
            self._scope = await nursery.start(self._watch)
        elif not on and self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def _watch(self, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        self.board = Observable(EMPTY_BOARD)
        status = Observable(WatchStatus())
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                watch = BoardWatch(
                    worker=self._hardware[0],
                    dcmi=self._hardware[1],
                    host=self._hardware[2],
                    board=self.board,
                    interval=0.01,
                    faults=NodeFaults(self._folder),
                    status=status,
                )
                await nursery.start(watch.run)
                # Nothing counts what comes before the subscription, nor can the model.
                await status.wait_until(lambda status: status.answered)
                task_status.started(scope)


def is_as_fresh(board: Board, fresh: Board) -> bool:
    """Whether *board* says what *fresh* does, except for times and codes that separated an NPU."""
    separated = {
        (npu.name, fault.code)
        for npu in board.chips
        for fault in npu.health.faults
        if fault.level is FaultLevel.MANUALLY_SEPARATE_NPU
    }

    def verdict(npu: Chip) -> tuple[object, ...]:
        faults = (f for f in npu.health.faults if (npu.name, f.code) not in separated)
        return npu.name, npu.health.unmonitored, *((fault.code, fault.level) for fault in faults)

    return [*map(verdict, board.chips)] == [*map(verdict, fresh.chips)]


async def follow(
    sequence: Sequence[tuple[Step, float]], play: Play, dcmi: Dcmi, host: Host, folder: Path
) -> None:
    """Let the sequence happen, and wait for the Board of a fresh read.

    While a card is away the pauses between two listings double, so that the next one takes as long
    as all before: the longer the sequence took, the longer its end may.
    """
    with trio.fail_after(120):
        async with open_worker() as worker, trio.open_nursery() as nursery:
            began = trio.current_time()
            watchers = Watchers(worker, dcmi, host, folder)
            for step, pause in [*sequence, (Play.end, 0.0)]:
                await watchers.be(nursery, on=play.is_watched)
                step(play)
                await trio.sleep(pause)
            await watchers.be(nursery, on=True)
            fresh = await read_board(worker, dcmi, host, NodeFaults(None))
            assert len(fresh.chips) == 8
            with trio.move_on_after(10 + 2 * (trio.current_time() - began)):
                await watchers.board.wait_until(
                    lambda board: is_as_fresh(board, fresh) and play.allows(board)
                )
            assert is_as_fresh(watchers.board.value, fresh), (watchers.board.value, fresh)
            assert play.allows(watchers.board.value), (watchers.board.value, play.counts)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_events", [True, False], ids=["events", "polling"])
def test_any_sequence_ends_in_the_board_of_a_fresh_read(
    simulated: SimulatedBoard,
    host: Host,
    control: BoardControl,
    tmp_path: Path,
    *,
    has_events: bool,
) -> None:
    """Occur, recover, notice, loss, restart, chip gone and back: the truth is read again.

    And each occurrence was counted once.
    """
    dcmi = Shared.load(simulated.root)
    dcmi.has_events = has_events
    folders = (tmp_path / f"faults-{number}" for number in count())

    @settings(max_examples=settings().max_examples // 4, suppress_health_check=list(HealthCheck))
    @given(sequences())
    def check(sequence: Sequence[tuple[Step, float]]) -> None:
        folder = next(folders)
        folder.mkdir()
        trio.run(follow, sequence, Play(control, has_events=has_events), dcmi, host, folder)

    check()
