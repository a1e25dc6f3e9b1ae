"""The overlay's rights and policies fit what is written."""

from __future__ import annotations

import re
from typing import Any

from tests.mindcluster.chips import a3, b4, duo, of_950
from tests.test_manifests import NAME, ROOT, kustomization, load
from trio_npu_dra.mindcluster.device_info import NAME_PREFIX, NAMESPACE
from trio_npu_dra.mindcluster.node_facts import node_annotations, node_labels
from trio_npu_dra.settings import Settings, flag

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
    rules = load(FOLDER)["ValidatingAdmissionPolicy", "ascend-npu-dra-own-device-info"]["spec"]
    assert f'"{NAME_PREFIX}" + variables.agentNode' in str(rules["validations"])


def test_rights_are_the_accounts_and_each_is_narrowed() -> None:
    """Every right to write is under a policy that is bound, and for our account."""
    objects, base = load(FOLDER), load("base")
    (role,) = [about for (kind, _), about in objects.items() if kind == "Role"]
    assert role["metadata"]["namespace"] == NAMESPACE
    writes = {
        resource
        for (kind, _), about in objects.items()
        if kind in {"Role", "ClusterRole"}
        for rule in about["rules"]
        for resource in rule["resources"]
    }
    guarded, bound = set(), set()
    ours = base["ValidatingAdmissionPolicy", "ascend-npu-dra-own-node-only"]["spec"]
    for (kind, name), about in objects.items():
        spec: Any = about.get("spec", {})
        if kind == "ValidatingAdmissionPolicy":
            assert spec["matchConditions"] == ours["matchConditions"]
            guarded |= {
                resource
                for rule in spec["matchConstraints"]["resourceRules"]
                for resource in rule["resources"]
            }
            assert ("ValidatingAdmissionPolicyBinding", name) in objects
            bound.add(name)
        elif kind.endswith("RoleBinding"):
            (subject,) = about["subjects"]
            assert subject["name"] == NAME
    assert writes == guarded == {"nodes", "pods", "configmaps"}
    assert len(bound) == 2


def test_overlay_is_whole() -> None:
    """It lists its files, and its flags exist."""
    listed = kustomization(FOLDER)
    files = {file.name for file in (ROOT / "k8s" / FOLDER).glob("*.yaml")}
    assert set(listed["resources"]) == files - {"kustomization.yaml"} | {"../../base"}
    (patch,) = listed["patches"]
    flags = set(re.findall(r"value: (--[\w-]+)=", patch["patch"]))
    assert flags == {flag("device_plugin"), flag("mindcluster_compat")}
    assert {"device_plugin", "mindcluster_compat"} <= Settings.model_fields.keys()
