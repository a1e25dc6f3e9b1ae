"""The daemon's answers to `npu-dra health`, over the real socket."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trio
import trio.testing

from dev.rig.boards import partition, split
from dev.site.unhealthy_boards import board, fault, npu
from tests.holds.holding import hold
from trio_npu_dra.agent.control.answers import Control, serve_control
from trio_npu_dra.agent.control.client import Reply, ask_all
from trio_npu_dra.agent.control.report import HealthReport, report_npus, report_partitioning
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.holds.owner import Life
from trio_npu_dra.ascend.dcmi.errors import Busy
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.ascend.offers import NO_PARTITIONS
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.endpoints import Endpoints

TWICE_A_DAY = 0x80E01801
"""A code that separates the NPU when it comes twice in a day."""

NPUS = (npu(0), npu(3, fault(), unmonitored="no answer in 2 s", network="RoCE port: fault (5)"))


def endpoints(folder: Path, uid: str | None) -> Endpoints:
    """The sockets of an instance whose folder this is."""
    return Endpoints(
        driver_name="npu.huawei.com",
        plugin_directory=folder,
        registrar_directory=folder,
        pod_uid=uid,
    )


@pytest.fixture
async def worker() -> AsyncIterator[DcmiWorker]:
    """For calls that hang."""
    async with open_worker(deadline_seconds=0.01) as worker:
        yield worker


@dataclass(frozen=True, kw_only=True)
class Served:
    """A daemon with a control socket."""

    control: Control
    folder: Path

    async def ask(self, method: str, target: str) -> Reply:
        """Send one request with the command's client."""
        (reply,) = await trio.to_thread.run_sync(ask_all, self.folder, method, target)
        return reply

    async def report(self) -> HealthReport:
        """The daemon's report."""
        reply = await self.ask("GET", "/health")
        assert reply.status == 200
        return HealthReport.model_validate_json(reply.text)


@pytest.fixture
async def served(folder: Path, worker: DcmiWorker) -> AsyncIterator[Served]:
    """Its second NPU is unhealthy and held."""
    control = Control(
        life=Observable(Life.OWNS),
        board=Observable(board(*NPUS)),
        watch=Observable(WatchStatus()),
        features=Observable(None),
        worker=worker,
        faults=NodeFaults(None),
        holds=Observable((hold("npu-3", 3),)),
        partitioning=Observable(NO_PARTITIONS),
        resources=Observable({}),
        waiting=Observable({}),
    )
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_control, control, endpoints(folder, "a"))
            yield Served(control=control, folder=folder)
            nursery.cancel_scope.cancel()


def test_a_split_npu_is_offered_in_its_partitions() -> None:
    """These are no names of it; each claim or pod that has one of them holds it."""
    split_npu = split(npu(0), partition(100), partition(101))
    pod = ResourceDevice(
        resource="a/b-2c", chip=split_npu, partition=Partition(template="v", vnpu=101)
    )
    of_pod = pod.entry(namespace="ml", pod="x").holds
    holds = (hold("npu-0-vnpu-100", 0, vnpu=100), *of_pod)
    (told,) = report_npus(board(split_npu), holds)
    assert told.offered_as == ""
    assert told.held_by == ("ml/train", "ml/x")
    partitioning = report_partitioning(board(split_npu), holds, NO_PARTITIONS, None)
    assert [str(one).partition(", ")[2] for one in partitioning.partitions] == [
        "cut by hand, held by claim ml/train",
        "cut by hand, held by pod ml/x",
    ]


async def test_health_has_the_resources_and_what_waits_to_go_there(served: Served) -> None:
    """How many devices there are, and how many pods can get and have; also of none of them."""
    chip = npu(0)
    shares = [ResourceDevice(resource="a/b", chip=chip, share=share) for share in range(2)]
    unhealthy = ResourceDevice(resource="a/b", chip=NPUS[1])
    served.control.resources.set({"a/c": (), "a/b": (*shares, unhealthy)})
    served.control.waiting.set({"npu-3": "to a/b, but it is held by claim ml/train"})
    pods = [share.entry(namespace="ml", pod="train") for share in shares]
    served.control.holds.set(tuple(hold for pod in pods for hold in pod.holds))
    report = await served.report()
    assert [str(resource) for resource in report.resources] == [
        "a/b: 3 devices, 2 healthy, 2 held",
        "a/c: 0 devices, 0 healthy, 0 held",
    ]
    assert report.waiting == {"npu-3": "to a/b, but it is held by claim ml/train"}
    assert report.npus[0].held_by == ("ml/train",)
    assert report.unserved == ()

    # Another selection has taken the NPU out; a hold of a claim does not count.
    served.control.resources.set({"a/b": ()})
    served.control.holds.set((*pods[0].holds, hold("npu-3", 3)))
    assert (await served.report()).unserved == ("npu-0 by pod ml/train",)


async def test_health_has_all_that_is_known_of_each_npu(served: Served) -> None:
    """It has level, faults with code, text, rule and time, silence, network and the claim."""
    well, unhealthy = (await served.report()).npus

    assert well.model_dump(exclude_defaults=True) == {
        "device": "npu-0",
        "offered_as": "npu-0",
        "level": "NormalNPU",
        "state": "Healthy",
    }
    assert unhealthy.model_dump() == {
        "device": "npu-3",
        "offered_as": "npu-3",
        "level": "RestartBusiness",
        "state": "Unhealthy",
        "faults": (
            {
                "code": "80E01801",
                "level": "RestartBusiness",
                "rule": "fault table",
                "text": "HBM ECC",
                "since": "2026-11-21T17:01:00Z",
            },
        ),
        "unmonitored": "no answer in 2 s",
        "network": "RoCE port: fault (5)",
        "held_by": ("ml/train",),
    }


async def test_health_says_how_it_is_known_and_what_becomes_of_it(served: Served) -> None:
    """Events or polling, with the reason, tell faults; unhealthy NPUs are tainted or left out."""
    assert (await served.report()).watch == "starting"
    assert (await served.report()).taints is None

    served.control.watch.set(WatchStatus(refusal="not supported"))
    served.control.features.set(ServerFeatures(taint_effects=frozenset()))
    polling = await served.report()
    assert (polling.watch, polling.refusal, polling.taints) == ("polling", "not supported", False)
    assert polling.gaps == ()

    with_gaps = replace(served.control.board.value, unlisted_accelerators=("0000:41:00.0",))
    served.control.board.set(with_gaps)
    assert (await served.report()).gaps == ("accelerator 0000:41:00.0 is not listed",)

    served.control.watch.set(WatchStatus(subscribed=True))
    served.control.features.set(ServerFeatures())
    events = await served.report()
    assert (events.watch, events.refusal, events.taints) == ("events", "", True)


@pytest.mark.parametrize(
    ("device", "name"),
    [(ChipRef(3, 0), "npu-3"), (("network", ChipRef(3, 0)), "npu-3"), (None, "")],
)
async def test_a_call_that_hangs_is_named_until_it_returns(
    served: Served, worker: DcmiWorker, device: object, name: str
) -> None:
    """The report has function, NPU and start time."""
    gate = threading.Event()

    def read_health() -> None:
        gate.wait()

    try:
        with pytest.raises(Busy):
            await worker.call(read_health, device=device)
        (hung,) = (await served.report()).hung_calls
        assert (hung.function, hung.device) == ("read_health", name)
        assert hung.since.endswith("Z")
    finally:
        gate.set()
    while (await served.report()).hung_calls:  # noqa: ASYNC110 - a thread returns
        await trio.sleep(0.01)


async def test_a_separated_npu_is_released_once(served: Served) -> None:
    """The rule's verdict is gone, and a second release has no effect."""
    unhealthy = NPUS[1]
    chip = served.control.faults.of(unhealthy)
    for codes in ({TWICE_A_DAY: ""}, {}, {TWICE_A_DAY: ""}, {}):
        chip.take_confirmed(HealthSample(codes=codes), served.control.faults.now())
    assert chip.health(served.control.faults.now()).level is FaultLevel.MANUALLY_SEPARATE_NPU

    released = await served.ask("POST", "/release?device=npu-3")
    again = await served.ask("POST", "/release?device=npu-3")

    assert (released.status, released.text) == (
        200,
        "npu-3 is released, and its faults are counted from zero",
    )
    assert chip.health(served.control.faults.now()).level is FaultLevel.NORMAL
    assert again.status == 409
    assert "nothing to release" in again.text


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("/release?device=npu-9", 404, "no NPU 'npu-9' on this node; there are: npu-0, npu-3"),
        ("/release", 404, "no NPU '' on this node"),
        ("/release?device=npu-0", 409, "npu-0 is not separated"),
    ],
)
async def test_a_release_that_cannot_be_says_why(
    served: Served, target: str, status: int, words: str
) -> None:
    """The NPU does not exist, or is not separated."""
    reply = await served.ask("POST", target)

    assert reply.status == status
    assert words in reply.text


async def test_a_socket_that_goes_while_it_is_looked_for_hides_no_other(served: Served) -> None:
    """Its instance has just ended; a dangling link stands for it here."""
    (served.folder / "control-0.sock").symlink_to(served.folder / "gone")

    assert (await served.ask("GET", "/health")).status == 200


async def test_a_folder_that_is_missing_is_said_with_what_to_do(served: Served) -> None:
    """The folder is the first part of the kubelet that a daemon needs."""
    with pytest.RaisesGroup(
        pytest.RaisesExc(ConfigError, match="is the kubelet's directory mounted there"),
        allow_unwrapped=True,
        flatten_subgroups=True,
    ):
        await serve_control(served.control, endpoints(served.folder / "none", None))
