"""Changes of multi-die policy, vNPUs and share flags are noticed without an event."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from dev.rig.looking import Relay
from tests.ascend.watching import Watching
from trio_npu_dra.ascend.chip import describe
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import NotSupported
from trio_npu_dra.ascend.dcmi.types import ChipRef, MultiDiePolicy
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.discovery import discover
from trio_npu_dra.ascend.division_poll import read_division
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.lab.simulator import BoardControl, SimulatedBoard, load_profile


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_policy_and_share_flags_are_read_without_a_new_list(
    watching: Watching, control: BoardControl
) -> None:
    """Neither the bus nor an event reports them; an unanswered one stays as it was."""
    await watching.start()
    control.set_return_code("dcmi_get_card_list", -8005)
    control.set_multi_die_policy(independent=True)
    control.set_share(3, enabled=True)  # of an A3 card: of both its dies
    await watching.until(
        lambda board: (
            board.multi_die_policy is MultiDiePolicy.INDEPENDENT
            and [chip.device_share for chip in board.chips[:5]] == [False, False, True, True, False]
        )
    )
    control.set_return_code("dcmi_get_multi_die_policy", -8006)
    control.set_return_code("dcmi_get_device_share_enable", -8006, 3)
    control.set_share(4, enabled=True)
    board = await watching.until(lambda board: board.by_name["npu-4"].device_share is True)
    assert board.by_name["npu-3"].device_share is True
    assert board.multi_die_policy is MultiDiePolicy.INDEPENDENT


class Fickle(Dcmi):
    """A library that says something else of the multi-die policy, so many times."""

    lapses = 0
    said: MultiDiePolicy | None = None

    def multi_die_policy(self) -> MultiDiePolicy:
        """What it says now."""
        if not self.lapses:
            return super().multi_die_policy()
        self.lapses -= 1
        if self.said is None:
            raise NotSupported(-8255, "dcmi_get_multi_die_policy")
        return self.said


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
@pytest.mark.parametrize("said", [None, MultiDiePolicy.UNION])
async def test_another_policy_is_said_twice(
    simulated: SimulatedBoard,
    worker: DcmiWorker,
    host: Host,
    control: BoardControl,
    said: MultiDiePolicy | None,
) -> None:
    """All devices of the node change by it."""
    control.set_multi_die_policy(independent=True)
    dcmi = Fickle.load(simulated.root)
    dcmi.init()
    known = await discover(worker, dcmi, host)
    dcmi.said = said
    for lapses, policy in ((1, MultiDiePolicy.INDEPENDENT), (2, said)):
        dcmi.lapses = lapses
        assert (await read_division(worker, dcmi, known)).multi_die_policy is policy
        assert not dcmi.lapses


@pytest.mark.parametrize("profile", [load_profile("a3-16"), load_profile("950-pod-8")])
async def test_a_super_pod_that_is_reported_late_is_known_without_a_new_list(
    dcmi: Dcmi, worker: DcmiWorker, board: Board
) -> None:
    """The library has none while its chips start, and no event reports it later."""
    assert {chip.super_pod_id for chip in board.chips} != {None}
    dcmi.init()
    early = [
        replace(
            chip,
            super_pod_id=None,
            super_pod_server_index=None,
            super_pod_sdid=None,
            super_pod_type=None,
            rack_id=None,
        )
        for chip in board.chips
    ]
    fresh = await read_division(worker, dcmi, replace(board, chips=tuple(early)))
    assert fresh == board


async def test_a_change_of_vnpus_is_logged_once(
    watching: Watching, control: BoardControl, caplog: pytest.LogCaptureFixture
) -> None:
    """The Board gets the vNPUs, and loses them when they are gone."""
    caplog.set_level(logging.INFO)
    control.create_vnpu(3, "vir05_1c_8g")
    control.create_vnpu(3, "vir10_3c_16g")
    await watching.start()
    assert watching.board.value.by_name["npu-3"].vnpus == (148, 149)
    control.create_vnpu(4, "vir05_1c_8g")
    await watching.until(lambda board: board.by_name["npu-4"].vnpus == (164,))
    control.destroy_vnpu(3, 148)
    control.destroy_vnpu(3, 149)
    await watching.until(lambda board: not board.by_name["npu-3"].vnpus)
    said = [
        (record.__dict__["npu"], record.__dict__["vnpus"])
        for record in caplog.records
        if record.getMessage() == "NPU is split"
    ]
    assert said[:2] == [("npu-3", [148, 149]), ("npu-4", [164])]
    assert said[-1] == ("npu-3", [])


async def test_a_partition_is_seen_by_its_node(
    watching: Watching, control: BoardControl, simulated: SimulatedBoard
) -> None:
    """At the next look at these: all else of the division is read for far more rarely."""
    watching.interval = 0.02
    await watching.start()
    control.hang("dcmi_get_multi_die_policy")
    control.create_vnpu(3, "vir05_1c_8g")
    await watching.until(lambda board: board.by_name["npu-3"].vnpus == (148,))
    (partition,) = watching.board.value.by_name["npu-3"].vdevices
    assert (partition.id, partition.template, partition.resources.ai_cores) == (
        148,
        "vir05_1c_8g",
        5,
    )
    assert (simulated.dev_root / "vdavinci148").exists()
    control.release("dcmi_get_multi_die_policy")


class Interrupted(Relay):
    """A worker that lets something happen, once, after the last chip of a list was described."""

    def __init__(self, worker: DcmiWorker, last: ChipRef) -> None:
        super().__init__(worker)
        self.last = last
        self.then: Callable[[], Awaitable[None]] | None = None

    async def call(self, function: Any, *arguments: Any, **how: Any) -> Any:  # type: ignore[override]
        """Hand it on, and let it happen."""
        result = await super().call(function, *arguments, **how)
        then = self.then
        if then is not None and function is describe and how["device"] == self.last:
            self.then = None
            await then()
        return result


async def test_a_list_brings_no_partition_back_that_went_meanwhile(
    nursery: trio.Nursery,
    worker: DcmiWorker,
    dcmi: Dcmi,
    host: Host,
    control: BoardControl,
) -> None:
    """It was read before the partition went, and comes after the reading that knows of it."""
    control.create_vnpu(7, "vir05_1c_8g")
    interrupted = Interrupted(worker, ChipRef(7, 0))
    watching = Watching(nursery, interrupted, dcmi, host)
    watching.interval = 0.2
    await watching.start()
    assert watching.board.value.by_name["npu-7"].vnpus == (212,)
    is_known = trio.Event()

    async def remove() -> None:
        control.destroy_vnpu(7, 212)
        await watching.division.again()
        assert not watching.board.value.by_name["npu-7"].vnpus
        is_known.set()

    interrupted.then = remove
    (host.dev_root / "davinci99").touch()  # the cards are listed again
    with trio.fail_after(20):
        await is_known.wait()
    with trio.move_on_after(0.6):
        await watching.board.wait_until(lambda board: bool(board.by_name["npu-7"].vnpus))
        raise AssertionError("the partition came back")
