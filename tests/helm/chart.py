"""Helm and the chart, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from dev.cluster.api import Object
from dev.cluster.binaries import helm, kubernetes
from dev.cluster.processes import run
from dev.cluster.releases import DEFAULT
from dev.site.chart_values import CHART, ROOT

NAMESPACE = "ascend-dra"
REPOSITORY = "docker.io/library/dra-npu"
LABELS = {
    "app.kubernetes.io/name": "trio-npu-dra",
    "app.kubernetes.io/instance": "npus",
    "app.kubernetes.io/managed-by": "Helm",
}
"""What every object of the release `npus` has besides what k8s/ says, and `helm.sh/chart`."""
CHART_LABEL = "helm.sh/chart"

Objects = dict[tuple[str, str], Object]


def with_image(values: Object | None = None) -> Object:
    """The values, with a repository for the image, which has no default."""
    given = values or {}
    return given | {"image": {"repository": REPOSITORY} | given.get("image", {})}


def template(
    values: Object | None = None, *words: str, chart: Path = CHART, namespace: str = NAMESPACE
) -> str:
    """What Helm would install as the release `npus`, as YAML.

    Args:
        values: What is set besides the chart's defaults and the image's repository.
        words: More arguments for Helm.
        chart: The folder of the chart, or its package.
        namespace: That of the release.

    Raises:
        ClusterError: Helm refuses the values; the message ends with its reason.
    """
    about = ("template", "npus", chart, "--namespace", namespace, "--values", "-")
    return run(helm(), *about, *words, stdin=json.dumps(with_image(values)))  # JSON is YAML


def kustomized(folder: str) -> str:
    """What kubectl makes of a folder below k8s/."""
    return run(kubernetes(DEFAULT).ready() / "kubectl", "kustomize", ROOT / "k8s" / folder)


def objects(text: str) -> Objects:
    """The objects in YAML, by kind and name."""
    found: Objects = {}
    for about in yaml.safe_load_all(text):
        key = about["kind"], about["metadata"]["name"]
        assert key not in found, f"{key} twice"
        found[key] = about
    return found


def without_labels(rendered: Objects) -> Objects:
    """The objects as k8s/ has them; fails if one lacks a label of the chart."""
    for about in rendered.values():
        labels = about["metadata"]["labels"]
        assert labels.pop(CHART_LABEL).startswith("trio-npu-dra-")
        for label, value in LABELS.items():
            assert labels.pop(label) == value
        if not labels:
            del about["metadata"]["labels"]
    return rendered
