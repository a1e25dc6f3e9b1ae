"""The alerts and the dashboard of k8s/monitoring, in a real Prometheus that scrapes the driver."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from dev.cluster.driver import DRIVER, Driver
from dev.cluster.processes import ClusterError
from tests.e2e.faults import KEEPS_PODS
from tests.e2e.prometheus import Prometheus, started
from tests.e2e.space import Space, claim, pod, request
from tests.monitoring.manifests import FOLDER, dashboard, queries
from trio_npu_dra.lab.simulator import Severity

pytestmark = pytest.mark.cluster

SEPARATE = 0xA2301001
"""SeparateNPU."""
HOT, COOL = 97, 38
SPARE = 7
"""The NPU that no pod of this test gets."""


def chosen(query: str, *, node: str) -> str:
    """A query of the dashboard with Grafana's words filled in."""
    filled = query.replace("$node", node).replace("$device", ".*")
    return filled.replace("$__rate_interval", "30s")


@contextmanager
def unhealthy(driver: Driver, held: int) -> Iterator[None]:
    """A held NPU has a fault, heat and bad links; a free NPU has a fault that separates it."""
    with driver.board() as board:
        try:
            board.add_fault(held, KEEPS_PODS, Severity.MAJOR)
            board.set_temperature(held, HOT)
            board.set_network_health(held, 3)
            board.set_hccs_status(held, 2)
            board.add_fault(SPARE, SEPARATE, Severity.CRITICAL)
            yield
        finally:
            board.clear_fault(held, KEEPS_PODS)
            board.clear_fault(SPARE, SEPARATE)
            board.set_temperature(held, COOL)
            board.set_network_health(held, 0)
            board.set_hccs_status(held, 3)


def start_pods(space: Space) -> str:
    """Two pods with NPUs, one of which has ended; returns the NPU of the other."""
    fit = request(cel=f'device.attributes["{DRIVER}"].physicalId != {SPARE}')
    names = ("ended", "running")
    space.apply(*(claim(name, fit) for name in names), *(pod(name, name) for name in names))
    for name in names:
        space.wait_phase(name)
    space.delete_pod("ended")
    (device,) = space.allocated("running")
    return device


def fail_to_prepare(space: Space) -> None:
    """A claim has a device that the node does not have."""
    space.apply(claim("wrong"), pod("wrong", "wrong", is_gated=True))
    space.allocate("wrong", "wrong", npu="npu-99")
    space.ungate("wrong")
    space.wait_event("wrong", "FailedPrepareDynamicResources", "npu-99")
    space.delete_pod("wrong")


def test_dashboard_shows_all_and_alerts_are_about_what_is(
    driver: Driver, space: Space, tmp_path: Path, notes: list[str]
) -> None:
    """Every query has data, every alert can be judged, and those of the unhealthy NPUs are on."""
    node = driver.cluster.node.name
    asked = [chosen(query, node=node) for _, query in queries()]
    fail_to_prepare(space)
    began = time.monotonic()
    with started(driver, tmp_path) as prometheus:
        device = start_pods(space)
        wait_alerts(driver, prometheus)
        with unhealthy(driver, int(device.removeprefix("npu-"))):
            about = {"node": node, "severity": "warning"}
            held, spare = about | {"device": device}, about | {"device": f"npu-{SPARE}"}
            by = {"claim_namespace": space.name, "claim": "running"}
            wait_alerts(
                driver,
                prometheus,
                held | by | {"alertname": "NpuFaultHeld", "level": "RestartBusiness"},
                held | {"alertname": "NpuHot"},
                held | {"alertname": "NpuHbmHot"},
                held | {"alertname": "NpuHccsDown"},
                held | {"alertname": "NpuNetworkDown"},
                spare | {"alertname": "NpuFaultFree", "level": "SeparateNPU"},
            )
            wait_data(driver, prometheus, asked)
        wait_alerts(driver, prometheus)
        rules = prometheus.rules()

    assert [rule["lastError"] for rule in rules if rule["health"] != "ok"] == []
    notes.append(
        f"{time.monotonic() - began:6.1f} s  Prometheus: {len(asked)} queries with data, "
        f"{len(rules)} alerts judged"
    )


def test_grafana_and_the_operator_get_the_files(driver: Driver) -> None:
    """From the folder kubectl makes both of the operator's objects, and a ConfigMap."""
    made = driver.cluster.kubectl("kustomize", FOLDER)
    objects = {each["kind"]: each for each in yaml.safe_load_all(made)}
    assert objects.keys() == {"PodMonitor", "PrometheusRule", "ConfigMap"}
    assert {each["metadata"]["namespace"] for each in objects.values()} == {"ascend-dra"}
    (text,) = objects["ConfigMap"]["data"].values()
    assert yaml.safe_load(text) == dashboard()
    driver.cluster.kubectl(
        *("create", "--dry-run=server", "--filename", "-"),
        stdin=yaml.safe_dump(objects["ConfigMap"]),
    )


def wait_alerts(driver: Driver, prometheus: Prometheus, *expected: dict[str, str]) -> None:
    """Wait until these alerts about NPUs are pending or fire, and no others."""
    wanted = {frozenset(labels.items()) for labels in expected}

    def check() -> None:
        found = [alert["labels"] for alert in prometheus.alerts("ascend-npu-dra.npus")]
        if {frozenset(each.items()) for each in found} != wanted:
            raise ClusterError(f"other alerts: {found}")

    driver.cluster.wait_ok(check, "the alerts about NPUs")


def wait_data(driver: Driver, prometheus: Prometheus, asked: list[str]) -> None:
    """Wait until each of those queries has a value."""

    def check() -> None:
        answers = prometheus.query(*asked)
        empty = [
            query
            for query, values in zip(asked, answers, strict=True)
            if not any(map(math.isfinite, values))
        ]
        if empty:
            raise ClusterError(f"no data: {empty}")

    driver.cluster.wait_ok(check, "data for every panel")
