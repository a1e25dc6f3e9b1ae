"""The content of `k8s/monitoring`, and the metrics that it may name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from trio_npu_dra.agent.observe.catalog import CATALOG, Kind

FOLDER = Path(__file__).parents[2] / "k8s/monitoring"

_METRIC = re.compile(r"\b((?:npu_dra|process)_\w+|up)\b(?:\s*\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|group_left|without)\s*\(([^)]*)\)")


def load(name: str) -> Any:
    """The object in one of the YAML files."""
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def rules_file() -> str:
    """The rules as Prometheus reads them, out of the PrometheusRule."""
    return yaml.safe_dump(load("rules.yaml")["spec"], allow_unicode=True)


def alerts() -> dict[str, Any]:
    """The alert rules by name."""
    groups = load("rules.yaml")["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def dashboard() -> Any:
    """The dashboard."""
    return json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))


def panels() -> list[Any]:
    """The panels of the dashboard without its rows, which show nothing."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Title of the panel and query, of every panel."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@dataclass(frozen=True, slots=True)
class Selected:
    """One metric in an expression, and the labels that choose among its series."""

    metric: str
    labels: frozenset[str]


def selected(expression: str) -> list[Selected]:
    """The metrics of an expression, in its order."""
    return [
        Selected(metric, frozenset(_MATCHER.findall(matchers)))
        for metric, matchers in _METRIC.findall(expression)
    ]


def grouped(expression: str) -> set[str]:
    """The labels by which an expression sums up or joins."""
    lists = _GROUPING.findall(expression)
    return {label.strip() for each in lists for label in each.split(",") if label.strip()}


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
