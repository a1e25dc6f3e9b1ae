"""The series of an NPU: their values, and how they name its holder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import trio
from prometheus_client.samples import Sample
from trio.testing import MockClock

from dev.rig.boards import partition, split
from tests.holds.entries import chip, hold
from trio_npu_dra.agent.holds.hold import Hold, HolderKind
from trio_npu_dra.agent.holds.owner import Life
from trio_npu_dra.agent.observe import catalog
from trio_npu_dra.agent.observe.state import NodeState, NpuReadings
from trio_npu_dra.ascend.dcmi.types import EccCounts
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.ascend.telemetry import Telemetry, TelemetryReader
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.registration import NOT_REGISTERED
from trio_npu_dra.kit.pool import PublisherStatus

VNPU = 100
BOARD = Board(
    chips=(
        split(replace(chip(0), memory_bytes=2**35), partition(VNPU)),
        replace(chip(1), memory_bytes=2**35),
    )
)
CONTAINERS = {"pod-of-npu-1": "main", "pod-of-npu-1-1": "side", "pod-of-npu-0-vnpu-100": "main"}
NOBODY = dict.fromkeys(catalog.HOLDER_LABELS, "")
POD = NOBODY | {"pod_namespace": "ml", "pod_name": "train", "container_name": "main"}
CLAIM = NOBODY | {"claim_namespace": "ml", "claim": "train"}


def of_pod(one: Hold) -> Hold:
    """The hold as that of a pod."""
    return one._replace(holder=named(one).holder._replace(kind=HolderKind.POD))


def named(one: Hold) -> Hold:
    """The hold of a claim with the name that all have here."""
    return one._replace(holder=one.holder._replace(namespace="ml", name="train"))


class Read(NpuReadings):
    """Telemetry that has been read."""

    def __init__(self, worker: DcmiWorker, board: Observable[Board], **values: Telemetry) -> None:
        super().__init__(worker, None, board)
        self.values = values

    def fresh(self) -> Mapping[str, Telemetry]:
        """All of it."""
        return {name.replace("_", "-"): telemetry for name, telemetry in self.values.items()}


async def samples(*holds: Hold, **telemetry: Telemetry) -> list[Sample]:
    """The samples about NPUs, with names in short."""
    board = Observable(BOARD)
    prefix = f"{catalog.PREFIX}npu_"
    async with open_worker() as worker:
        state = NodeState(
            life=Observable(Life.OWNS),
            board=board,
            watch=Observable(WatchStatus()),
            features=Observable(None),
            publisher=Observable(PublisherStatus()),
            registration=Observable(NOT_REGISTERED),
            holds=Observable(holds),
            containers=Observable(CONTAINERS),
            written_off=lambda: 0,
            readings=Read(worker, board, **telemetry),
        )
        return [
            sample._replace(name=sample.name.removeprefix(prefix))
            for family in state.collect()
            for sample in family.samples
            if sample.name.startswith(prefix)
        ]


async def holders(*holds: Hold) -> dict[str, dict[str, str]]:
    """The labels of holders, by metric and device."""
    return {
        f"{name} {labels['device']}": {label: labels[label] for label in catalog.HOLDER_LABELS}
        for name, labels, *_ in await samples(*holds)
        if name in {"memory_size_bytes", "partition_info"}
    }


async def test_a_claim_or_a_pod_is_named() -> None:
    """A pod with its container, as the kubelet's list has it; a chip's vNPU has its own holder."""
    found = await holders(
        of_pod(hold("pod-of-npu-1", 1)),
        of_pod(hold("pod-of-npu-0-vnpu-100", 0, partition=Partition(template="vir06", vnpu=VNPU))),
    )
    assert found == {
        "memory_size_bytes npu-0": NOBODY,
        "memory_size_bytes npu-1": POD,
        "partition_info npu-0": POD,
    }
    found = await holders(named(hold("one", 1)))
    assert found["memory_size_bytes npu-1"] == CLAIM
    assert found["partition_info npu-0"] == NOBODY


async def test_a_shared_npu_names_nobody() -> None:
    """Its power is not that of one of them; two shares of one container are its own."""
    shares = [
        of_pod(hold("pod-of-npu-1", 1, share="0")),
        of_pod(hold("pod-of-npu-1-1", 1, share="1")),
    ]
    assert (await holders(*shares))["memory_size_bytes npu-1"] == NOBODY
    both = [shares[0], shares[0]._replace(share="1")]
    assert (await holders(*both))["memory_size_bytes npu-1"] == POD


async def test_what_no_list_has_is_not_named() -> None:
    """A container that the kubelet has not listed; a pod that is not known; admin access."""
    unlisted = await holders(of_pod(hold("pod-of-npu-1-7", 1)))
    assert unlisted["memory_size_bytes npu-1"] == POD | {"container_name": ""}
    unknown = of_pod(hold("pod-of-npu-1-7", 1))
    unknown = unknown._replace(holder=unknown.holder._replace(namespace="", name=""))
    assert (await holders(unknown))["memory_size_bytes npu-1"] == NOBODY
    observing = await holders(named(hold("one", 1, observer=True)))
    assert observing["memory_size_bytes npu-1"] == NOBODY


async def test_each_value_has_its_metric() -> None:
    """What an NPU does not have is missing."""
    errors = EccCounts(
        single_bit=10, double_bit=11, single_bit_ever=12, double_bit_ever=13, isolated_pages=14
    )
    whole = Telemetry(
        temperature_celsius=1,
        power_watts=2,
        ai_core_ratio=0.3,
        ai_cpu_ratio=0.4,
        vector_core_ratio=0.5,
        memory_used_bytes=6,
        hbm_temperature_celsius=7,
        hbm_bandwidth_ratio=0.8,
        hbm_errors=errors,
        hccs_up=False,
    )
    found = await samples(npu_0=Telemetry(), npu_1=whole)
    about = {"chip": "910B4", **NOBODY}
    values = {
        device: {
            sample.name: sample.value
            for sample in found
            if sample.labels == {"device": device, **about}
        }
        for device in ("npu-0", "npu-1")
    }
    assert values["npu-0"] == {"memory_size_bytes": 2**35}
    assert values["npu-1"] == {
        "memory_size_bytes": 2**35,
        "temperature_celsius": 1,
        "power_watts": 2,
        "ai_core_utilization_ratio": 0.3,
        "ai_cpu_utilization_ratio": 0.4,
        "vector_core_utilization_ratio": 0.5,
        "memory_used_bytes": 6,
        "hbm_temperature_celsius": 7,
        "hbm_bandwidth_utilization_ratio": 0.8,
        "hbm_single_bit_errors_total": 10,
        "hbm_double_bit_errors_total": 11,
        "hbm_lifetime_single_bit_errors_total": 12,
        "hbm_lifetime_double_bit_errors_total": 13,
        "hbm_isolated_pages": 14,
        "hccs_up": 0,
    }


class Slow(TelemetryReader):
    """Takes two seconds for a chip; a scrape waits three for all."""

    def __init__(self) -> None:
        """No library is asked."""

    async def read(self, chip: Chip) -> Telemetry:
        """Its memory."""
        await trio.sleep(2)
        return Telemetry(memory_used_bytes=chip.memory_bytes)


async def test_slow_npus_are_read_by_turns(autojump_clock: MockClock) -> None:
    """The next scrape begins with those for which the last one had no time."""
    del autojump_clock
    async with open_worker() as worker:
        readings = NpuReadings(worker, None, Observable(BOARD))
        readings._reader = Slow()
        read = []
        for _ in range(4):
            await readings.refresh()
            read.append(set(readings.fresh()))
            await trio.sleep(60)
    assert read == [{"npu-0"}, {"npu-1"}, {"npu-0"}, {"npu-1"}]
