"""The alert rules and the PodMonitor against the driver's real metrics."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.monitoring.alert_cases import CASES
from tests.monitoring.manifests import (
    FOLDER,
    LABELS,
    TARGET_LABELS,
    alerts,
    grouped,
    labels_of,
    load,
    selected,
)
from trio_npu_dra.agent.devices.taints import TaintEffect, TaintPolicy
from trio_npu_dra.ascend.dcmi.worker import MAX_WRITTEN_OFF
from trio_npu_dra.ascend.model import FaultLevel

ALERTS = alerts()
LEVELS = re.compile(r'level(=~|!~|=)"([\w|]+)"')


def levels(alert: str) -> set[str]:
    """The fault levels at which an alert fires."""
    found = LEVELS.search(ALERTS[alert]["expr"])
    assert found
    named = set(found[2].split("|"))
    every = {str(level) for level in FaultLevel}
    return every - named if found[1] == "!~" else named


@pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS.keys())
def test_alert_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    """Its metrics are in the catalog, with the labels that it selects, sums and joins by."""
    found = selected(rule["expr"])
    assert found
    for each in found:
        assert each.labels <= labels_of(each.metric)
    assert grouped(rule["expr"]) <= TARGET_LABELS.union(*(labels_of(one.metric) for one in found))


@pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS.keys())
def test_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    """It has one of three severities, a sentence and a description; templates are plain labels."""
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description"}
    for text in rule["annotations"].values():
        assert text.endswith(".")
        rest = re.sub(r"{{ (\$value|\$labels\.(\w+)) }}", "", text)
        assert "{{" not in rest
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= LABELS | TARGET_LABELS
    assert len(rule["annotations"]["description"]) > len(rule["annotations"]["summary"])


def test_every_alert_has_a_case() -> None:
    """`tests/e2e/test_alerts.py` runs the cases; each has similar series that stay quiet."""
    assert {case.alert for case in CASES} == ALERTS.keys()
    assert {case.alert for case in CASES if case.quiet} == ALERTS.keys()


def test_alerts_about_holders_follow_what_taints_do() -> None:
    """A held NPU is urgent where the default policy evicts, not where it only keeps work away."""
    effects = TaintPolicy(domain="npu.huawei.com").effects
    by_effect = {
        effect: {level for level in FaultLevel if effects.get(level) is effect}
        for effect in TaintEffect
    }
    assert levels("NpuUnfitHeld") == by_effect[TaintEffect.NO_EXECUTE]
    assert levels("NpuFaultHeld") == by_effect[TaintEffect.NO_SCHEDULE]
    assert levels("NpuFaultFree") == {level for level in FaultLevel if level.is_unhealthy}
    assert levels("NpuSubHealth") == by_effect[TaintEffect.NONE]


def test_the_bound_of_hung_calls_is_the_drivers() -> None:
    """The alert is critical when the driver makes no more calls."""
    assert ALERTS["NpuDraNoCallsLeft"]["expr"].endswith(f">= {MAX_WRITTEN_OFF}")


def test_the_pod_monitor_finds_the_daemonsets_pods() -> None:
    """By their labels and the name of their port; their label is the job that alerts know."""
    monitor = load("podmonitor.yaml")
    daemonset = yaml.safe_load((FOLDER.parent / "base/daemonset.yaml").read_text(encoding="utf-8"))
    template = daemonset["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]

    assert monitor["metadata"]["namespace"] == daemonset["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert endpoint["port"] in [port["name"] for port in container["ports"]]
    assert endpoint["path"] == "/metrics"
    (relabeling,) = endpoint["relabelings"]
    assert relabeling["sourceLabels"] == ["__meta_kubernetes_pod_node_name"]
    assert relabeling["targetLabel"] == "node"
    job = template["metadata"]["labels"][monitor["spec"]["jobLabel"]]
    jobs = [found for rule in ALERTS.values() for found in re.findall(r'job="(.*?)"', rule["expr"])]
    assert jobs
    assert set(jobs) == {job}


def test_every_file_is_listed() -> None:
    """`kubectl apply -k` applies all of it, the dashboard as a ConfigMap that Grafana finds."""
    kustomization = load("kustomization.yaml")
    (dashboard,) = kustomization["configMapGenerator"]
    files = {path.name for path in FOLDER.iterdir()} - {"kustomization.yaml"}

    embedded = {each.partition("=")[2] for each in dashboard["files"]}
    assert files == {*kustomization["resources"], *embedded}
    assert dashboard["options"]["labels"] == {"grafana_dashboard": "1"}
