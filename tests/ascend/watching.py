"""A watcher of a simulated board, for the tests to wait on."""

from __future__ import annotations

from collections.abc import Callable

import trio

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.division_poll import DivisionPoll
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, ChipHealth
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.ascend.watcher import BoardWatch
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.base.observable import Observable

BUSINESS = 0x81B38002  # RestartBusiness
MINOR = 0x80CD8003  # NotHandle
TWICE = 0x80E01801  # RestartBusiness, twice a day: separated by hand

NEVER = 3600.0
"""As the interval: only events can report a change."""


class Watching:
    """A watcher of the board, with the values that it keeps true."""

    def __init__(self, nursery: trio.Nursery, worker: DcmiWorker, dcmi: Dcmi, host: Host) -> None:
        self.board = Observable(EMPTY_BOARD)
        self.status = Observable(WatchStatus())
        self.heard = Observable(0)  # how many events came
        self.faults = NodeFaults(None)
        self.interval = 0.02
        self.patience = 20.0
        self.known = EMPTY_BOARD
        self.division = DivisionPoll()
        self._nursery = nursery
        self._hardware = (worker, dcmi, host)

    async def start(self) -> None:
        """Start it; it ends with the test."""
        worker, dcmi, host = self._hardware
        watch = BoardWatch(
            worker=worker,
            dcmi=dcmi,
            host=host,
            board=self.board,
            interval=self.interval,
            faults=self.faults,
            status=self.status,
            division=self.division,
            on_event=lambda _: self.heard.set(self.heard.value + 1),
        )
        with trio.fail_after(self.patience):
            await self._nursery.start(watch.run, self.known)
            if self.board.value.chips:
                await self.status.wait_until(lambda status: status != WatchStatus())

    async def restarted(self, faults: NodeFaults) -> Watching:
        """Another watcher of the board, with only these faults of the past."""
        other = Watching(self._nursery, *self._hardware)
        other.faults = faults
        await other.start()
        return other

    async def until(self, condition: Callable[[Board], bool]) -> Board:
        """The first Board that fulfils *condition*."""
        with trio.fail_after(30):
            return await self.board.wait_until(condition)

    async def until_health(
        self, number: int, condition: Callable[[ChipHealth], bool]
    ) -> ChipHealth:
        """The first health of an NPU that fulfils *condition*."""
        name = f"npu-{number}"
        board = await self.until(
            lambda board: name in board.by_name and condition(board.by_name[name].health)
        )
        return board.by_name[name].health

    async def until_state(self, number: int, state: HealthState) -> ChipHealth:
        """The first health of an NPU with that verdict."""
        return await self.until_health(number, lambda health: health.state is state)
