"""How others tie chips together, split or share them: no event tells it, and it is noticed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from dev.rig.looking import Relay
from tests.ascend.watching import BUSINESS, Watching
from trio_npu_dra.agent.devices.build import build_devices
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.ascend.chip import describe, read_split
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.types import ChipRef, MultiDiePolicy
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.discovery import discover
from trio_npu_dra.ascend.division_poll import read_partition
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.lab.simulator import BoardControl, Severity, SimulatedBoard, load_profile


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_a_policy_that_changes_is_noticed_without_a_new_list(
    watching: Watching, control: BoardControl
) -> None:
    """Neither the bus nor an event tells; a driver that does not answer changes nothing."""
    await watching.start()
    control.set_multi_die_policy(independent=True)
    control.set_return_code("dcmi_get_card_list", -8005)
    await watching.until(lambda board: board.multi_die_policy is MultiDiePolicy.INDEPENDENT)
    control.set_return_code("dcmi_get_multi_die_policy", -8006)
    control.add_fault(3, BUSINESS, Severity.MAJOR)
    await watching.until_state(3, HealthState.UNHEALTHY)
    assert watching.board.value.multi_die_policy is MultiDiePolicy.INDEPENDENT


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
        assert (await read_partition(worker, dcmi, known)).multi_die_policy is policy
        assert not dcmi.lapses


@pytest.mark.parametrize("profile", [load_profile("a3-16"), load_profile("950-pod-8")])
async def test_a_super_pod_that_is_told_late_is_known_without_a_new_list(
    dcmi: Dcmi, worker: DcmiWorker, board: Board
) -> None:
    """The library has none while its chips start; no event tells that it has."""
    assert {chip.super_pod_id for chip in board.chips} != {None}
    dcmi.init()
    early = [
        replace(
            chip,
            super_pod_id=None,
            super_pod_server_index=None,
            super_pod_sdid=None,
            super_pod_type=None,
        )
        for chip in board.chips
    ]
    fresh = await read_partition(worker, dcmi, replace(board, chips=tuple(early)))
    assert fresh == board


class Forgetful(Dcmi):
    """A library that forgets vNPUs.

    Attributes:
        lapses: How many times it does.
        error: What it says then; None is a list without them.
    """

    lapses = 0
    error: DcmiError | None = None

    def vnpus(self, chip: ChipRef) -> tuple[int, ...]:
        """Those that it remembers."""
        if not self.lapses:
            return super().vnpus(chip)
        self.lapses -= 1
        if self.error is not None:
            raise self.error
        return ()


@pytest.mark.parametrize("error", [None, NotSupported(-8255, "dcmi_get_device_info")])
async def test_a_vnpu_is_gone_when_two_answers_lack_it(
    simulated: SimulatedBoard,
    worker: DcmiWorker,
    host: Host,
    control: BoardControl,
    error: DcmiError | None,
) -> None:
    """Who has one that is gone is evicted, so a single answer does not decide it."""
    control.create_vnpu(3, "vir05_1c_8g")
    dcmi = Forgetful.load(simulated.root)
    dcmi.init()
    board = await discover(worker, dcmi, host)
    dcmi.error = error
    for lapses, vnpus in ((1, (148,)), (2, ())):
        dcmi.lapses = lapses
        chip, problem = read_split(dcmi, board.by_name["npu-3"])
        assert (chip.vnpus, problem) == (vnpus, "")


async def test_a_chip_that_others_split_is_said_once(
    watching: Watching, control: BoardControl, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever offers chips learns of the vNPUs, and that they are gone."""
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
    """At the next look at these: all else about splits is asked for far more rarely."""
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
        await watching.splits.again()
        assert not watching.board.value.by_name["npu-7"].vnpus
        is_known.set()

    interrupted.then = remove
    (host.dev_root / "davinci99").touch()  # the cards are listed anew
    with trio.fail_after(20):
        await is_known.wait()
    with trio.move_on_after(0.6):
        await watching.board.wait_until(lambda board: bool(board.by_name["npu-7"].vnpus))
        raise AssertionError("the partition came back")


async def test_a_share_flag_that_changes_is_noticed_without_a_new_list(
    watching: Watching, control: BoardControl
) -> None:
    """As the multi-die policy is; a chip that does not answer keeps its flag."""
    await watching.start()
    control.set_return_code("dcmi_get_card_list", -8005)
    control.set_share(3, enabled=True)
    await watching.until(lambda board: board.by_name["npu-3"].device_share is True)
    control.set_return_code("dcmi_get_device_share_enable", -8006, 3)
    control.set_share(4, enabled=True)
    board = await watching.until(lambda board: board.by_name["npu-4"].device_share is True)
    assert board.by_name["npu-3"].device_share is True


@pytest.mark.parametrize("profile", [load_profile("a3-16")])
async def test_devices_are_as_policy_and_share_are_now(
    watching: Watching, control: BoardControl
) -> None:
    """What is published follows both, to and fro, with nothing else that changes."""

    def published(board: Board) -> dict[str, tuple[str | None, bool | None]]:
        policy = TaintPolicy(domain="npu.huawei.com")
        devices = build_devices(available(board, ()), board, policy, ServerFeatures())
        found = {device.name: device.attributes or {} for device in devices}
        return {
            name: (attributes["multiDiePolicy"].string, attributes["deviceShare"].bool_)
            for name, attributes in found.items()
        }

    modules = {f"module-{card}": ("union", False) for card in range(8)}
    await watching.start()
    assert published(watching.board.value) == modules
    control.set_multi_die_policy(independent=True)
    control.set_share(4, enabled=True)  # of an A3 card: of both its dies
    dies = {f"npu-{die}": ("independent", die in {4, 5}) for die in range(16)}
    await watching.until(lambda board: published(board) == dies)
    control.set_multi_die_policy(independent=False)
    control.set_share(4, enabled=False)
    await watching.until(lambda board: published(board) == modules)
