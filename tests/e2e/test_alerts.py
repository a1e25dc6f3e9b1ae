"""The alert rules in Prometheus' own judgement: by `promtool`, without a cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.cluster.processes import run
from tests.monitoring.alert_cases import CASES, Case, Series
from tests.monitoring.manifests import alerts, queries, rules_file

LATE = 90
"""Minutes after which every alert whose condition holds has fired."""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules file."""
    path = tmp_path / "rules.yaml"
    path.write_text(rules_file(), encoding="utf-8")
    return path


def test_the_rules_are_well_formed(rules: Path) -> None:
    """Prometheus would load them."""
    assert f"{len(alerts())} rules found" in run("promtool", "check", "rules", rules)


def test_the_dashboards_queries_are_well_formed(tmp_path: Path) -> None:
    """As recording rules, with Grafana's own interval filled in."""
    texts = [query.replace("$__rate_interval", "1m") for _, query in queries()]
    rules = [{"record": f"query:{index}", "expr": text} for index, text in enumerate(texts)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    assert f"{len(rules)} rules found" in run("promtool", "check", "rules", path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_alert_fires_in_time_and_not_otherwise(case: Case, rules: Path) -> None:
    """It fires in its minute, once, with its labels and texts; the quiet series raise no alert."""
    never = [at(case, minute) for minute in range(0, LATE, 5)]
    groups = [
        group(
            "fires", case.series, [at(case, case.minutes - 1), at(case, case.minutes, firing(case))]
        ),
        *(group(what, series, never) for what, series in case.quiet.items()),
    ]
    path = rules.with_name("tests.yaml")
    content = {"rule_files": [rules.name], "evaluation_interval": "1m", "tests": groups}
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    run("promtool", "test", "rules", path)


def group(name: str, series: Series, checks: list[dict[str, Any]]) -> dict[str, Any]:
    """A test of promtool: checks while these series come in."""
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "alert_rule_test": checks,
    }


def at(case: Case, minute: int, *firing: dict[str, Any]) -> dict[str, Any]:
    """A check that just these alerts fire at a minute."""
    return {"alertname": case.alert, "eval_time": f"{minute}m", "exp_alerts": list(firing)}


def firing(case: Case) -> dict[str, Any]:
    """The alert with its texts as people get them."""
    rule = alerts()[case.alert]
    return {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {
            name: _worded(text, case) for name, text in rule["annotations"].items()
        },
    }


def _worded(template: str, case: Case) -> str:
    text = template.replace("{{ $value }}", case.value)
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: case.labels.get(found[1], ""), text)
