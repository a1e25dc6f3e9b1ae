"""The metrics and their labels, from the catalog."""

from __future__ import annotations

from typing import Final

from trio_npu_dra.agent.observe.catalog import CATALOG, Kind

TARGET_LABELS: Final = frozenset({"job", "instance", "namespace", "pod", "container", "node"})
"""Labels that Prometheus adds to every series of a pod; `node` is the PodMonitor's own."""

_PROCESS: Final = {
    "up",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
}


def _shown() -> dict[str, frozenset[str]]:
    shown = dict.fromkeys(_PROCESS, frozenset[str]())
    for one in CATALOG:
        labels = frozenset(one.labels)
        if one.kind is Kind.HISTOGRAM:
            shown |= {f"{one.name}_count": labels, f"{one.name}_sum": labels}
            shown[f"{one.name}_bucket"] = labels | {"le"}
        else:
            shown[one.name] = labels
    return shown


_SHOWN: Final = _shown()

LABELS: Final = frozenset().union(*_SHOWN.values())
"""All labels that the driver's metrics have."""


def labels_of(metric: str) -> frozenset[str]:
    """The labels of a metric as Prometheus stores it.

    Raises:
        KeyError: There is no such metric.
    """
    return _SHOWN[metric] | TARGET_LABELS
