"""Whatever happens to chips and to the watcher: in the end the Board is that of a fresh read.

The board is simulated, its library real; faults come and go, events get lost or say what is not so,
chips drop and return, and watchers end and begin, in sequences that hypothesis makes up.
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

from trio_npu_dra.errors import NotSupported
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.types import FaultEvent
from trio_npu_dra.npu.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.npu.fault_memory import NodeFaults
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, FaultLevel
from trio_npu_dra.npu.watcher import WatchStatus, read_board, watch_board
from trio_npu_dra.observable import Observable
from trio_npu_dra.simulator import Assertion, BoardControl, Severity, SimulatedBoard

SEVERITIES: Final = {
    0x80CD8003: Severity.MINOR,  # NotHandle
    0x81B38002: Severity.MAJOR,  # RestartBusiness
    0x80E01801: Severity.MAJOR,  # RestartBusiness, twice a day: separated by hand
    0x81078603: Severity.MINOR,  # NotHandle, five times a day: separated by hand
    0x12345678: Severity.CRITICAL,  # not in the table
}
CHIPS: Final = (2, 5)

Step: TypeAlias = Callable[["Play"], None]


class Taught(Dcmi):
    """A library that a process uses once, used by many watchers: the last to subscribe is told."""

    handler: Callable[[FaultEvent], None] | None = None
    tells = True

    def subscribe(self, handler: Callable[[FaultEvent], None]) -> None:
        """Tell *handler* from now on, and nobody else."""
        if not self.tells:
            raise NotSupported(-8255, "dcmi_subscribe_fault_event", "not here")
        is_first, self.handler = self.handler is None, handler
        if is_first:
            super().subscribe(lambda event: self.handler(event) if self.handler else None)


class Play:
    """What a sequence does: to chips at once, to the watcher when it is next awaited."""

    def __init__(self, control: BoardControl) -> None:
        self.control = control
        self.is_watched = True
        self._listed: dict[int, set[int]] = {chip: set() for chip in CHIPS}
        self._away: set[int] = set()
        for chip in CHIPS:
            self.back(chip)

    def turn(self, chip: int, code: int) -> None:
        """A fault comes, or goes; the driver tells it."""
        if code in self._listed[chip]:
            self._listed[chip].discard(code)
            self.control.clear_fault(chip, code)
        else:
            self._listed[chip].add(code)
            self.control.add_fault(chip, code, SEVERITIES[code])

    def say(self, chip: int, code: int, assertion: Assertion) -> None:
        """An event that nothing stands behind, or not yet."""
        self.control.emit_event(chip, code, SEVERITIES[code], assertion)

    def leave(self, chip: int, how: str) -> None:
        """A chip drops off the bus, or boots."""
        self._away.add(chip)
        getattr(self.control, how)(chip)

    def back(self, chip: int) -> None:
        """A chip is there without faults; no event tells it."""
        self._away.discard(chip)
        self._listed[chip].clear()
        self.control.restore(chip)

    def watch(self, *, on: bool) -> None:
        """The watcher ends, or there is one again."""
        self.is_watched = on

    def end(self) -> None:
        """All chips can be read, and somebody watches."""
        for chip in list(self._away):
            self.back(chip)
        self.watch(on=True)


chips = st.sampled_from(CHIPS)
codes = st.sampled_from(list(SEVERITIES))
steps = st.one_of(
    st.builds(lambda chip, code: partial(Play.turn, chip=chip, code=code), chips, codes),
    st.builds(
        lambda chip, code, what: partial(Play.say, chip=chip, code=code, assertion=what),
        chips,
        codes,
        st.sampled_from(Assertion),
    ),
    st.builds(
        lambda chip, how: partial(Play.leave, chip=chip, how=how),
        chips,
        st.sampled_from(["set_gone", "set_booting", "set_silent"]),
    ),
    st.builds(lambda chip: partial(Play.back, chip=chip), chips),
    st.builds(lambda on: partial(Play.watch, on=on), st.booleans()),
)
sequences = st.lists(st.tuples(steps, st.sampled_from([0.0, 0.005, 0.03])), max_size=25)


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
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(
                    partial(
                        watch_board,
                        *self._hardware,
                        board=self.board,
                        faults=NodeFaults(self._folder),
                        status=Observable(WatchStatus()),
                        interval_seconds=0.01,
                    )
                )
                task_status.started(scope)


def verdicts(board: Board) -> dict[str, tuple[str, set[tuple[int, str]]]]:
    """What is known of each NPU, but for since when, and for what a day's events add to it."""
    return {
        npu.name: (
            npu.health.unmonitored,
            {
                (fault.code, fault.level)
                for fault in npu.health.faults
                if fault.level is not FaultLevel.MANUALLY_SEPARATE_NPU
            },
        )
        for npu in board.chips
    }


def is_as_fresh(board: Board, fresh: Board) -> bool:
    """Whether *board* says what *fresh* does; a code that separated an NPU may be over."""
    said, truth = verdicts(board), verdicts(fresh)
    for npu in board.chips:
        for fault in npu.health.faults:
            if fault.level is FaultLevel.MANUALLY_SEPARATE_NPU:
                truth[npu.name] = (
                    truth[npu.name][0],
                    {one for one in truth[npu.name][1] if one[0] != fault.code},
                )
    return said == truth


async def follow(
    sequence: Sequence[tuple[Step, float]], play: Play, dcmi: Dcmi, host: Host, folder: Path
) -> None:
    """Let the sequence happen, and wait for the Board of a fresh read."""
    with trio.fail_after(20):
        async with open_worker() as worker, trio.open_nursery() as nursery:
            watchers = Watchers(worker, dcmi, host, folder)
            for step, pause in [*sequence, (Play.end, 0.0)]:
                await watchers.be(nursery, on=play.is_watched)
                step(play)
                await trio.sleep(pause)
            await watchers.be(nursery, on=True)
            fresh = await read_board(worker, dcmi, host, NodeFaults(None))
            assert len(fresh.chips) == 8
            with trio.move_on_after(5):
                await watchers.board.wait_until(lambda board: is_as_fresh(board, fresh))
            assert is_as_fresh(watchers.board.value, fresh), (watchers.board.value, fresh)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("tells", [True, False], ids=["events", "polling"])
def test_any_sequence_ends_in_the_board_of_a_fresh_read(
    simulated: SimulatedBoard, host: Host, control: BoardControl, tmp_path: Path, *, tells: bool
) -> None:
    """Occur, recover, notice, loss, restart, chip gone and back: the truth is read anew."""
    dcmi = Taught.load(simulated.root)
    dcmi.tells = tells
    folders = (tmp_path / f"faults-{number}" for number in count())

    @settings(max_examples=settings().max_examples // 4, suppress_health_check=list(HealthCheck))
    @given(sequences)
    def check(sequence: Sequence[tuple[Step, float]]) -> None:
        folder = next(folders)
        folder.mkdir()
        trio.run(follow, sequence, Play(control), dcmi, host, folder)

    check()
