"""The dashboard against the driver's real metrics, and against Grafana's rules."""

from __future__ import annotations

import re

import pytest

from tests.monitoring.manifests import (
    LABELS,
    TARGET_LABELS,
    dashboard,
    grouped,
    labels_of,
    panels,
    queries,
    selected,
)
from trio_npu_dra.agent.observe.catalog import CATALOG, PREFIX

QUERIES = list(queries())
BUILT_IN = {"__rate_interval"}

UNSHOWN = {
    f"{PREFIX}{name}"
    for name in (
        *("claim_operations_total", "pool_generation", "pool_waiting", "watching"),
        *("server_keeps_counters", "server_keeps_shares", "npu_partition_info"),
        "claim_status_writes_total",
    )
}
"""Metrics for alerts and for people who look for details."""


@pytest.mark.parametrize("query", [query for _, query in QUERIES])
def test_query_asks_for_what_there_is(query: str) -> None:
    """Its metrics are in the catalog, with the labels that it selects and sums by."""
    found = selected(query)
    assert found
    for each in found:
        assert each.labels <= labels_of(each.metric)
        assert "node" in each.labels, "the choice of nodes holds everywhere"
    assert grouped(query) <= LABELS | TARGET_LABELS | {"ascend_driver"}


def test_variables_are_defined() -> None:
    """Every `$name` of a query is a choice at the top of the page, or Grafana's own."""
    variables = {each["name"] for each in dashboard()["templating"]["list"]}
    assert variables == {"datasource", "node", "device"}
    used = {name for _, query in QUERIES for name in re.findall(r"\$(\w*[a-z]\w*)", query)}
    assert used == (variables - {"datasource"}) | BUILT_IN
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_metrics_are_shown() -> None:
    """Every metric of the driver is on the dashboard, except those named here."""
    shown = {each.metric for _, query in QUERIES for each in selected(query)}
    stems = {re.sub("_bucket$", "", metric) for metric in shown}
    assert {one.name for one in CATALOG} - stems == UNSHOWN
