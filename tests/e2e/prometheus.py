"""A Prometheus on the network of the cluster's node, as `k8s/monitoring` wants it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from dev.cluster.api import Object
from dev.cluster.driver import Driver
from dev.cluster.processes import ClusterError, Program, run, wait_until
from tests.monitoring.manifests import load, rules_file

PORT = 9090
FETCH = f"""
import http.client, sys
for path in sys.argv[1:]:
    connection = http.client.HTTPConnection("127.0.0.1", {PORT}, timeout=30)
    connection.request("GET", path)
    print(connection.getresponse().read().decode().strip())
"""
"""Another process, because this one is not on that network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running Prometheus; the prefix `inside` lets a command reach it."""

    inside: tuple[str, ...]
    program: Program

    def get(self, *paths: str) -> list[Any]:
        """What its API answers on each path below /api/v1/.

        Raises:
            ClusterError: It does not answer, or with an error; the message has its words.
        """
        self.program.check()
        urls = [f"/api/v1/{path}" for path in paths]
        lines = run(*self.inside, sys.executable, "-c", FETCH, *urls).splitlines()
        answers = [json.loads(line) for line in lines]
        for path, answer in zip(paths, answers, strict=True):
            if answer["status"] != "success":
                raise ClusterError(f"{path}: {answer['error']}")
        return [answer["data"] for answer in answers]

    def query(self, *expressions: str) -> list[list[float]]:
        """The values that each expression has now."""
        answers = self.get(*(f"query?{urlencode({'query': each})}" for each in expressions))
        return [[float(sample["value"][1]) for sample in answer["result"]] for answer in answers]

    def rules(self) -> list[Any]:
        """Every rule, with how its last evaluation went and its alerts."""
        (answer,) = self.get("rules")
        return [rule for group in answer["groups"] for rule in group["rules"]]

    def alerts(self, group: str) -> list[Any]:
        """The alerts of a group that are pending or fire."""
        (answer,) = self.get("rules")
        (found,) = [each for each in answer["groups"] if each["name"] == group]
        return [alert for rule in found["rules"] for alert in rule["alerts"]]


@contextmanager
def started(driver: Driver, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that has seen the driver's pod; its log is with those of the cluster.

    Args:
        driver: Is scraped, once a second.
        folder: Where its files go.
    """
    (folder / "rules.yaml").write_text(rules_file(), encoding="utf-8")
    config = folder / "prometheus.yaml"
    content = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": list(scrape_configs(driver.wait_ready())),
    }
    config.write_text(yaml.safe_dump(content), encoding="utf-8")
    run("promtool", "check", "config", config)
    process = driver.cluster.node.root.parent
    inside = ("nsenter", f"--net={process / 'ns/net'}", "--")
    program = Program.start(
        "prometheus",
        [
            *(*inside, "prometheus", f"--config.file={config}"),
            *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{PORT}"),
        ],
        logs=driver.cluster.logs,
    )
    prometheus = Prometheus(inside=inside, program=program)
    try:
        wait_until(lambda: "Server is ready" in program.log.read_text(), "Prometheus ready")
        wait_until(lambda: [1.0] in prometheus.query("up"), "the driver's pod scraped")
        yield prometheus
    finally:
        program.stop()


def scrape_configs(pod: Object) -> Iterator[Object]:
    """What the Prometheus operator makes of the PodMonitor, if there is this one pod.

    Service discovery is played: Debian's Prometheus has been built without that of Kubernetes.
    """
    monitor = load("podmonitor.yaml")
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        found = {
            "__meta_kubernetes_pod_node_name": pod["spec"]["nodeName"],
            "namespace": pod["metadata"]["namespace"],
            "pod": pod["metadata"]["name"],
            "container": container["name"],
            "endpoint": endpoint["port"],
        }
        target = f"{pod['status']['podIP']}:{ports[endpoint['port']]}"
        yield {
            "job_name": pod["metadata"]["labels"][monitor["spec"]["jobLabel"]],
            "metrics_path": endpoint["path"],
            "static_configs": [{"targets": [target], "labels": found}],
            "relabel_configs": [
                {_snake_case(name): value for name, value in relabeling.items()}
                for relabeling in endpoint["relabelings"]
            ],
        }


def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)
