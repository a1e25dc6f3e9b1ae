"""Every metric of this driver: name, kind, labels, meaning. Code and docs are made from here.

Names follow the rules of Prometheus: the prefix of the application, base units, `_total` for
counters, `_info` for facts that are labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PREFIX: Final = "npu_dra_"


class Kind(StrEnum):
    """How a metric's value behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One metric."""

    name: str  # as in queries
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # upper bounds, of a histogram


def _counter(name: str, meaning: str, *labels: str) -> Definition:
    return Definition(name=PREFIX + name, kind=Kind.COUNTER, meaning=meaning, labels=labels)


def _gauge(name: str, meaning: str, *labels: str) -> Definition:
    return Definition(name=PREFIX + name, kind=Kind.GAUGE, meaning=meaning, labels=labels)


def _histogram(name: str, meaning: str, *labels: str, buckets: tuple[float, ...]) -> Definition:
    return Definition(
        name=PREFIX + name, kind=Kind.HISTOGRAM, meaning=meaning, labels=labels, buckets=buckets
    )


HOLDER_LABELS: Final = ("claim_namespace", "claim", "pod_namespace", "pod_name", "container_name")
NPU_LABELS: Final = ("device", "chip", *HOLDER_LABELS)

# --- claims --------------------------------------------------------------------------------------

CALL_SECONDS = _histogram(
    "claim_call_duration_seconds",
    "Duration of the kubelet's calls, each with one or more claims; `operation` is `prepare` or "
    "`unprepare`.",
    "operation",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 45),
)
CLAIMS = _counter(
    "claim_operations_total",
    "Claims in the kubelet's calls, whether they succeeded or failed.",
    "operation",
)
CLAIM_ERRORS = _counter(
    "claim_errors_total",
    "Claims that could not be prepared or unprepared; `reason` is the class of the error, such as "
    "`DeviceHeld`.",
    "operation",
    "reason",
)
CLAIMS_PREPARED = _gauge("claims_prepared", "Claims that are prepared on this node.")
DEVICES_PREPARED = _gauge(
    "devices_prepared",
    "Devices (NPUs, modules) that prepared claims hold, without admin access.",
)
CLAIM_STATUS_WRITES = _counter(
    "claim_status_writes_total",
    "Writes of the status of claims; `result` is `ok` or the class of the error, such as "
    "`Forbidden`.",
    "result",
)

# --- publishing ----------------------------------------------------------------------------------

SLICE_WRITES = _counter(
    "slice_writes_total",
    "Writes of ResourceSlices; `result` is `ok` or the class of the error, such as `Conflict`.",
    "verb",
    "result",
)
WATCH_RESTARTS = _counter(
    "watch_restarts_total", "Watches of ResourceSlices opened again after contact was lost."
)
WATCHING = _gauge(
    "watching", "1 while foreign edits of our ResourceSlices are noticed without delay."
)
POOL_CURRENT = _gauge(
    "pool_current",
    "1 while the API server has the newest pool; 0 while a change is being written or is refused, "
    "and in an instance that waits for an older one to end.",
)
WAITING = _gauge(
    "pool_waiting", "1 while this instance waits for the one that serves this node to end."
)
POOL_DEVICES = _gauge("pool_devices", "Devices in the pool that was accepted last.")
POOL_GENERATION = _gauge("pool_generation", "Generation of the pool that was accepted last.")
SERVER_KEEPS_TAINTS = _gauge(
    "server_keeps_taints",
    "1 if the API server keeps taints of devices, 0 if unhealthy NPUs are left out of the "
    "ResourceSlice instead; absent until it has answered.",
)
SERVER_KEEPS_COUNTERS = _gauge(
    "server_keeps_counters",
    "1 if the API server keeps counters of devices, 0 if it does not and no partitions of NPUs are "
    "published; absent until it has answered.",
)
SERVER_KEEPS_SHARES = _gauge(
    "server_keeps_shares",
    "1 if the API server keeps that several claims may have a device, 0 if NPUs are published as a "
    "whole in spite of --sharing=shares; absent until it has answered.",
)
REGISTERED = _gauge("registered", "1 while the kubelet has registered this instance.")

# --- faults --------------------------------------------------------------------------------------

FAULT_EVENTS = _counter(
    "fault_events_total",
    "Fault events from the Ascend driver; `assertion` is `occurrence`, `recovery`, `notice` or "
    "`unknown`.",
    "assertion",
)
FAULT_EVENTS_LOST = _counter(
    "fault_events_lost_total",
    "Fault events that were lost because the daemon was busy; every chip is read, how often "
    "faults came may be undercounted.",
)
SUBSCRIBED = _gauge(
    "fault_events_subscribed",
    "1 if the Ascend driver sends fault events, 0 if it refused and chips are read in turn (the "
    "log says why); absent until it has answered.",
)
EVENT_TO_PUBLISH = _histogram(
    "fault_event_publish_duration_seconds",
    "Time from the arrival of a fault event until the API server has accepted the changed pool; "
    "for several events at once, from the first.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
)
NPU_LEVEL = _gauge(
    "npu_fault_level",
    "1 for the level of the NPU's worst fault, 0 for the other levels of Huawei's fault table.",
    "device",
    "level",
)
NPU_FAULT = _gauge(
    "npu_fault_start_timestamp_seconds",
    "When a fault of an NPU began, in seconds since 1970; one series for each active code.",
    "device",
    "code",
    "level",
)
NPU_UNMONITORED = _gauge(
    "npu_unmonitored", "1 while the health of the NPU cannot be read.", "device"
)
NPU_NETWORK_FAULT = _gauge(
    "npu_network_fault", "1 while something is wrong with the NPU's RoCE port.", "device"
)

# --- the Ascend driver ---------------------------------------------------------------------------

DCMI_SECONDS = _histogram(
    "dcmi_call_duration_seconds",
    "Duration of the calls into libdcmi.so that have returned.",
    "function",
    buckets=(0.001, 0.01, 0.1, 1, 10),
)
DCMI_ERRORS = _counter(
    "dcmi_errors_total",
    "Calls into libdcmi.so that returned another code than 0.",
    "function",
    "code",
)
DCMI_WRITTEN_OFF = _gauge(
    "dcmi_calls_written_off",
    "Calls into libdcmi.so that passed their deadline and have not returned; at 257, the driver "
    "makes no further calls.",
)
DRIVER_INFO = _gauge("ascend_driver_info", "The Ascend driver of the node.", "version")

# --- NPUs ----------------------------------------------------------------------------------------

NPU_TEMPERATURE = _gauge("npu_temperature_celsius", "Temperature of the chip.", *NPU_LABELS)
NPU_POWER = _gauge("npu_power_watts", "Power of the chip; on 310P, of the whole card.", *NPU_LABELS)
NPU_AI_CORES = _gauge(
    "npu_ai_core_utilization_ratio",
    "Share of time in which the AI cores are busy, 0 to 1.",
    *NPU_LABELS,
)
NPU_MEMORY_USED = _gauge("npu_memory_used_bytes", "Device memory in use.", *NPU_LABELS)
NPU_MEMORY_SIZE = _gauge("npu_memory_size_bytes", "Total device memory.", *NPU_LABELS)
NPU_AI_CPUS = _gauge(
    "npu_ai_cpu_utilization_ratio",
    "Share of time in which the AI CPUs are busy, 0 to 1.",
    *NPU_LABELS,
)
NPU_VECTOR_CORES = _gauge(
    "npu_vector_core_utilization_ratio",
    "Share of time in which the vector cores are busy, 0 to 1.",
    *NPU_LABELS,
)
NPU_HBM_TEMPERATURE = _gauge("npu_hbm_temperature_celsius", "Temperature of the HBM.", *NPU_LABELS)
NPU_HBM_BANDWIDTH = _gauge(
    "npu_hbm_bandwidth_utilization_ratio",
    "Share of the HBM's bandwidth in use, 0 to 1.",
    *NPU_LABELS,
)
NPU_HBM_CORRECTED = _counter(
    "npu_hbm_single_bit_errors_total",
    "Errors of the HBM that ECC corrected, since the chip started.",
    *NPU_LABELS,
)
NPU_HBM_UNCORRECTED = _counter(
    "npu_hbm_double_bit_errors_total",
    "Errors of the HBM that ECC could not correct, since the chip started.",
    *NPU_LABELS,
)
NPU_HBM_CORRECTED_EVER = _counter(
    "npu_hbm_lifetime_single_bit_errors_total",
    "Errors of the HBM that ECC corrected, in the life of the chip.",
    *NPU_LABELS,
)
NPU_HBM_UNCORRECTED_EVER = _counter(
    "npu_hbm_lifetime_double_bit_errors_total",
    "Errors of the HBM that ECC could not correct, in the life of the chip.",
    *NPU_LABELS,
)
NPU_HBM_ISOLATED = _gauge(
    "npu_hbm_isolated_pages",
    "Pages of the HBM that are not used any more because of double-bit errors.",
    *NPU_LABELS,
)
NPU_HCCS_UP = _gauge(
    "npu_hccs_up",
    "1 while all HCCS links of the NPU are up, 0 while one is not; 910B and A3.",
    *NPU_LABELS,
)

NPU_PARTITION = _gauge(
    "npu_partition_info",
    "A vNPU that an NPU is cut into, with the claim or pod that has it, if one has.",
    "device",
    "vnpu",
    "template",
    *HOLDER_LABELS,
)

# --- ourselves -----------------------------------------------------------------------------------

BUILD_INFO = _gauge(
    "build_info",
    "This driver; the revision is the commit that it was built from.",
    "version",
    "revision",
    "python_version",
)

CATALOG: Final = tuple(
    value for value in globals().copy().values() if isinstance(value, Definition)
)
