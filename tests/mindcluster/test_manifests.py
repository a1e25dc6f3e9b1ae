"""The overlay's rights and policies fit what is written."""

from __future__ import annotations

import re

from tests.mindcluster.chips import CHIPS, every_label
from tests.test_manifests import ROOT, kustomization, load
from trio_npu_dra.agent.flags import flag
from trio_npu_dra.agent.mindcluster.device_info import NAMESPACE
from trio_npu_dra.agent.mindcluster.node_facts import node_annotations
from trio_npu_dra.agent.mindcluster.pod_configuration import CONFIGURATION
from trio_npu_dra.agent.mindcluster.volcano import KUBELETS, REAL, TIME
from trio_npu_dra.agent.settings import Settings

FOLDER = "overlays/mindcluster"


def quoted(text: str) -> set[str]:
    """The texts in an expression."""
    return set(re.findall(r'"([^"]+)"', text))


def test_policy_lets_through_what_is_written_and_nothing_else() -> None:
    """Each label and annotation that a chip can tell."""
    policy = load("node-labels")["ValidatingAdmissionPolicy", "ascend-npu-dra-own-labels"]
    found = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    assert quoted(found["ownLabels"]) == {key for chip in CHIPS for key in every_label(chip)}
    node, pod = found["ownAnnotations"].split("\n: ", 1)
    assert quoted(node) == {key for chip in CHIPS for key in node_annotations([chip])}
    assert quoted(pod) == {CONFIGURATION, KUBELETS, REAL, TIME}


def test_configmaps_are_written_where_mindcluster_looks() -> None:
    """In no other namespace."""
    (role,) = [about for (kind, _), about in load(FOLDER).items() if kind == "Role"]
    assert role["metadata"]["namespace"] == NAMESPACE


def test_overlay_is_whole() -> None:
    """It lists its files, and its flags exist."""
    listed = kustomization(FOLDER)
    files = {file.name for file in (ROOT / "k8s" / FOLDER).glob("*.yaml")}
    others = {"../../base", "../../node-labels"}
    assert set(listed["resources"]) == files - {"kustomization.yaml"} | others
    (patch,) = listed["patches"]
    flags = set(re.findall(r"value: (--[\w-]+)=", patch["patch"]))
    assert flags == {flag("device_plugin"), flag("mindcluster_compat")}
    assert {"device_plugin", "mindcluster_compat"} <= Settings.model_fields.keys()
