"""The overlay's rights and policies fit what is written."""

from __future__ import annotations

import re

from tests.mindcluster.chips import a3, b4, duo, of_950
from tests.test_manifests import ROOT, kustomization, load
from trio_npu_dra.agent.flags import flag
from trio_npu_dra.agent.mindcluster.device_info import NAMESPACE
from trio_npu_dra.agent.mindcluster.node_facts import node_annotations, node_labels
from trio_npu_dra.agent.settings import Settings

FOLDER = "overlays/mindcluster"
CHIPS = (b4(board_id=0x28), duo(0), a3(0), of_950(0))


def variables(policy: str) -> dict[str, str]:
    """The expressions of a policy's variables."""
    spec = load(FOLDER)["ValidatingAdmissionPolicy", policy]["spec"]
    return {each["name"]: each["expression"] for each in spec["variables"]}


def quoted(text: str) -> set[str]:
    """The texts in an expression."""
    return set(re.findall(r'"([^"]+)"', text))


def test_policy_lets_through_what_is_written_and_nothing_else() -> None:
    """Each label and annotation that a chip can tell."""
    found = variables("ascend-npu-dra-own-labels")
    assert quoted(found["ownLabels"]) == {key for chip in CHIPS for key in node_labels([chip])}
    node, pod = found["ownAnnotations"].split(":", 1)
    assert quoted(node) == set(node_annotations([b4()]))
    assert quoted(pod) == {"huawei.com/AscendReal", "huawei.com/kltDev", "predicate-time"}


def test_configmaps_are_written_where_mindcluster_looks() -> None:
    """In no other namespace."""
    (role,) = [about for (kind, _), about in load(FOLDER).items() if kind == "Role"]
    assert role["metadata"]["namespace"] == NAMESPACE


def test_overlay_is_whole() -> None:
    """It lists its files, and its flags exist."""
    listed = kustomization(FOLDER)
    files = {file.name for file in (ROOT / "k8s" / FOLDER).glob("*.yaml")}
    assert set(listed["resources"]) == files - {"kustomization.yaml"} | {"../../base"}
    (patch,) = listed["patches"]
    flags = set(re.findall(r"value: (--[\w-]+)=", patch["patch"]))
    assert flags == {flag("device_plugin"), flag("mindcluster_compat")}
    assert {"device_plugin", "mindcluster_compat"} <= Settings.model_fields.keys()
