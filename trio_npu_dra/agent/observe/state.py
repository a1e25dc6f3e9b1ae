"""Metrics of the present state, read from the facts at each scrape."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trio_npu_dra import __version__
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind, vnpu_holders
from trio_npu_dra.agent.holds.owner import Life
from trio_npu_dra.agent.observe import catalog
from trio_npu_dra.agent.observe.catalog import Definition, Kind
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Board, Chip, FaultLevel
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.ascend.telemetry import Telemetry, TelemetryReader
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.registration import RegistrationStatus
from trio_npu_dra.kit.pool import PublisherStatus
from trio_npu_dra.revision import REVISION

Samples = Iterator[tuple[Definition, tuple[str, ...], float]]

NOBODY: Final = ("",) * len(catalog.HOLDER_LABELS)

INTERVAL_SECONDS: Final = 5.0
"""Between two readings of an NPU's telemetry, however many clients scrape."""

_DEADLINE_SECONDS: Final = 3.0  # for all NPUs: a scrape waits ten seconds by default


class NpuReadings:
    """The telemetry of NPUs, read when a scrape asks, but not too often, and never for long.

    Without a library there is none.
    """

    def __init__(self, worker: DcmiWorker, dcmi: Dcmi | None, board: Observable[Board]) -> None:
        self._reader = TelemetryReader(worker, dcmi) if dcmi else None
        self._board = board
        self._readings: dict[str, tuple[float, Telemetry]] = {}  # with the time of asking
        self._asking = trio.Lock()

    async def refresh(self) -> None:
        """Read NPUs whose values are old, the oldest first; after a deadline, leave the rest."""
        if self._reader is None:
            return
        with trio.move_on_after(_DEADLINE_SECONDS):
            async with self._asking:
                for chip in sorted(self._board.value.chips, key=self._asked_at):
                    if not chip.is_listed or chip.name in self.fresh():
                        continue
                    self._readings.pop(chip.name, None)
                    asked_at = trio.current_time()
                    self._readings[chip.name] = asked_at, await self._reader.read(chip)

    def _asked_at(self, chip: Chip) -> float:
        return self._readings[chip.name][0] if chip.name in self._readings else -inf

    def fresh(self) -> Mapping[str, Telemetry]:
        """Values by the chip's name, without those that are old."""
        oldest = trio.current_time() - INTERVAL_SECONDS
        return {name: telemetry for name, (at, telemetry) in self._readings.items() if at > oldest}


@dataclass(frozen=True, kw_only=True)
class NodeState(Collector):
    """The present facts of this node."""

    life: Observable[Life]
    board: Observable[Board]
    watch: Observable[WatchStatus]
    features: Observable[ServerFeatures | None]
    publisher: Observable[PublisherStatus]
    registration: Observable[RegistrationStatus]
    holds: Observable[tuple[Hold, ...]]
    containers: Observable[Mapping[str, str]]  # of pods, by the holder's UID
    written_off: Callable[[], int]  # DCMI calls that passed their deadline and have not returned
    readings: NpuReadings

    def collect(self) -> Iterable[Metric]:
        """All metrics of state that have a value."""
        families: dict[str, Metric] = {}
        for metric, labels, value in self._samples():
            family = families.get(metric.name)
            if family is None:
                kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
                family = kind(metric.name, metric.meaning, labels=metric.labels)
                families[metric.name] = family
            family.add_metric(labels, value)  # type: ignore[attr-defined] # both kinds have it
        return families.values()

    def _samples(self) -> Samples:
        yield from self._claims()
        yield from self._publishing()
        yield from self._driver()
        holders = self._holders()
        for chip in self.board.value.chips:
            yield from _health(chip)
            yield from self._telemetry(chip, holders.get(chip.device_node, NOBODY))
        yield from self._partitions()
        yield catalog.BUILD_INFO, (__version__, REVISION, platform.python_version()), 1

    def _claims(self) -> Samples:
        holds = self._holds_of_claims()
        yield catalog.CLAIMS_PREPARED, (), len({hold.holder.uid for hold in holds})
        own = {(hold.nodes, hold.partition) for hold in holds if not hold.observer}
        yield catalog.DEVICES_PREPARED, (), len(own)
        yield catalog.REGISTERED, (), self.registration.value.registered

    def _publishing(self) -> Samples:
        status, features = self.publisher.value, self.features.value
        yield catalog.WATCH_RESTARTS, (), status.watch_restarts
        yield catalog.WATCHING, (), status.watching
        yield catalog.POOL_CURRENT, (), status.current
        yield catalog.WAITING, (), self.life.value in {Life.WAITS, Life.TAKES_OVER}
        if status.published:
            yield catalog.POOL_DEVICES, (), status.devices
            yield catalog.POOL_GENERATION, (), status.generation
        if features is not None:
            yield catalog.SERVER_KEEPS_TAINTS, (), features.taints
            yield catalog.SERVER_KEEPS_COUNTERS, (), features.counters
            yield catalog.SERVER_KEEPS_SHARES, (), features.shares

    def _driver(self) -> Samples:
        watch, version = self.watch.value, self.board.value.driver_version
        yield catalog.FAULT_EVENTS_LOST, (), watch.lost
        if watch.answered:
            yield catalog.SUBSCRIBED, (), watch.subscribed
        yield catalog.DCMI_WRITTEN_OFF, (), self.written_off()
        if version:
            yield catalog.DRIVER_INFO, (version,), 1

    def _holders(self) -> dict[str, tuple[str, ...]]:
        """The labels of the one claim or pod that holds a chip, by the chip's device node.

        A chip measures all its partitions together, so none of their holders is its own.
        """
        found: dict[str, set[tuple[str, ...]]] = {}
        for hold in self.holds.value:
            for node in () if hold.observer or hold.partition else hold.nodes:
                found.setdefault(node, set()).add(self._labels(hold.holder))
        return {node: holders.pop() for node, holders in found.items() if len(holders) == 1}

    def _labels(self, holder: Holder | None) -> tuple[str, ...]:
        """Those of `catalog.HOLDER_LABELS`."""
        if holder is None:
            return NOBODY
        if holder.kind is HolderKind.POD:
            container = self.containers.value.get(holder.uid, "")
            return "", "", holder.namespace, holder.name, container
        return holder.namespace, holder.name, "", "", ""

    def _holds_of_claims(self) -> list[Hold]:
        others = {HolderKind.POD, HolderKind.LEFTOVER}
        return [hold for hold in self.holds.value if hold.holder.kind not in others]

    def _partitions(self) -> Samples:
        held = vnpu_holders(self.holds.value)
        for chip in self.board.value.chips:
            templates = {vdevice.id: vdevice.template for vdevice in chip.vdevices}
            for vnpu in chip.vnpus:
                part = chip.name, str(vnpu), templates.get(vnpu, "")
                yield catalog.NPU_PARTITION, (*part, *self._labels(held.get(vnpu))), 1

    def _telemetry(self, chip: Chip, holder: tuple[str, ...]) -> Samples:
        labels = (chip.name, chip.chip_name, *holder)
        telemetry = self.readings.fresh().get(chip.name)
        values: dict[Definition, float | None] = {catalog.NPU_MEMORY_SIZE: chip.memory_bytes}
        if telemetry is not None:
            values |= _measured(telemetry)
        for metric, value in values.items():
            if value is not None:
                yield metric, labels, value


def _measured(telemetry: Telemetry) -> dict[Definition, float | None]:
    values: dict[Definition, float | None] = {
        catalog.NPU_TEMPERATURE: telemetry.temperature_celsius,
        catalog.NPU_POWER: telemetry.power_watts,
        catalog.NPU_AI_CORES: telemetry.ai_core_ratio,
        catalog.NPU_AI_CPUS: telemetry.ai_cpu_ratio,
        catalog.NPU_VECTOR_CORES: telemetry.vector_core_ratio,
        catalog.NPU_MEMORY_USED: telemetry.memory_used_bytes,
        catalog.NPU_HBM_TEMPERATURE: telemetry.hbm_temperature_celsius,
        catalog.NPU_HBM_BANDWIDTH: telemetry.hbm_bandwidth_ratio,
        catalog.NPU_HCCS_UP: telemetry.hccs_up,
    }
    if errors := telemetry.hbm_errors:
        values |= {
            catalog.NPU_HBM_CORRECTED: errors.single_bit,
            catalog.NPU_HBM_UNCORRECTED: errors.double_bit,
            catalog.NPU_HBM_CORRECTED_EVER: errors.single_bit_ever,
            catalog.NPU_HBM_UNCORRECTED_EVER: errors.double_bit_ever,
            catalog.NPU_HBM_ISOLATED: errors.isolated_pages,
        }
    return values


def _health(chip: Chip) -> Samples:
    name, health = chip.name, chip.health
    for level in FaultLevel:
        yield catalog.NPU_LEVEL, (name, level), level is health.level
    for fault in health.faults:
        yield catalog.NPU_FAULT, (name, f"{fault.code:08X}", fault.level), fault.since
    yield catalog.NPU_UNMONITORED, (name,), bool(health.unmonitored)
    yield catalog.NPU_NETWORK_FAULT, (name,), bool(health.network)
