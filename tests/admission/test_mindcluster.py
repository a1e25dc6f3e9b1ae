"""The agent of one node labels that node alone, and changes nothing else of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.admission.policy import ELSEWHERE, NODE, Object, Request, policies
from tests.mindcluster.chips import CHIPS, b4, every_label
from trio_npu_dra.agent.mindcluster.device_info import NAME_PREFIX
from trio_npu_dra.agent.mindcluster.node_facts import node_annotations
from trio_npu_dra.agent.mindcluster.pod_configuration import CONFIGURATION
from trio_npu_dra.agent.mindcluster.volcano import KUBELETS, REAL, TIME

Values = Mapping[str, str]

POLICIES = policies("node-labels", "overlays/mindcluster")
NONE: Values = MappingProxyType({})
POD_KEYS = (CONFIGURATION, KUBELETS, REAL, TIME)


def node(name: str = NODE, *, labels: Values = NONE, annotations: Values = NONE) -> Object:
    """A Node with these labels and annotations."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"podCIDR": "10.0.0.0/24"},
    }


def pod(where: str = NODE, *, labels: Values = NONE, annotations: Values = NONE) -> Object:
    """A pod on a node."""
    return {
        "kind": "Pod",
        "metadata": {"name": "some", "labels": labels, "annotations": annotations},
        "spec": {"nodeName": where},
    }


def refusals(resource: str, *, new: Object | None, old: Object | None = None) -> list[str]:
    """Why the policies refuse a write."""
    asked = Request(resource=resource, new=new, old=old)
    return [told for policy in POLICIES.values() for told in policy.refusals(asked)]


def test_what_the_driver_writes_is_let_through() -> None:
    """Each label and annotation that a chip can tell: given, changed and taken away."""
    for chip in CHIPS:
        labels = every_label(chip)
        written = node(labels=labels, annotations=node_annotations([chip]))
        for old in (node(), node(labels=dict.fromkeys(labels, "x")), written):
            assert refusals("nodes", new=written, old=old) == []
        assert refusals("nodes", new=node(), old=written) == []
    told = pod(annotations=dict.fromkeys(POD_KEYS, "Ascend910-4"))
    assert refusals("pods", new=told, old=pod()) == []
    info: Object = {"kind": "ConfigMap", "metadata": {"name": NAME_PREFIX + NODE}}
    assert refusals("configmaps", new=info) == []
    assert refusals("configmaps", new=info, old=info) == []


def test_other_keys_may_be_there_unchanged() -> None:
    """Of other components."""
    theirs = {"example.com/theirs": "1"}
    for old, changed in (
        (node(labels=theirs, annotations=theirs), {"servertype": "x"}),
        (pod(labels=theirs, annotations=theirs), {}),
    ):
        resource = {"Node": "nodes", "Pod": "pods"}[old["kind"]]
        metadata = old["metadata"] | {"labels": theirs | changed}
        assert refusals(resource, new=old | {"metadata": metadata}, old=old) == []


@pytest.mark.parametrize(
    ("kind", "key", "words"),
    [("labels", "team", "this label"), ("annotations", "team", "this annotation")],
)
@pytest.mark.parametrize(("resource", "made"), [("nodes", node), ("pods", pod)])
def test_other_keys_are_neither_given_nor_changed_nor_taken(
    resource: str, made: Any, kind: str, key: str, words: str
) -> None:
    """An empty value is a value too."""
    values: list[dict[str, str]] = [{}, {key: ""}, {key: "a"}, {key: "b"}]
    for before in values:
        for after in values:
            told = refusals(resource, new=made(**{kind: after}), old=made(**{kind: before}))
            assert [words in each for each in told] == ([] if before == after else [True])


def test_pods_get_no_label_and_nodes_no_annotation_of_pods() -> None:
    """The keys of one kind of object are not those of the other."""
    label = {"servertype": "x"}
    assert refusals("nodes", new=node(labels=label), old=node()) == []
    assert len(refusals("pods", new=pod(labels=label), old=pod())) == 1
    for key in POD_KEYS:
        assert len(refusals("nodes", new=node(annotations={key: "x"}), old=node())) == 1
    for key in node_annotations([b4()]):
        assert len(refusals("pods", new=pod(annotations={key: "x"}), old=pod())) == 1


@pytest.mark.parametrize(
    ("resource", "foreign"),
    [("nodes", node(ELSEWHERE)), ("pods", pod(ELSEWHERE)), ("pods", pod() | {"spec": {}})],
    ids=["another node", "its pods", "a pod on no node"],
)
def test_nothing_is_written_elsewhere(resource: str, foreign: Object) -> None:
    """A pod's place is where it was: a write does not move it here first."""
    (told,) = refusals(resource, new=foreign, old=foreign)
    assert "may only write to that node and its pods" in told
    moved = foreign | {"spec": {"nodeName": NODE}}
    assert any(
        "may only write to that node" in told for told in refusals(resource, new=moved, old=foreign)
    )


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"metadata": {"name": NODE, "finalizers": ["example.com/stay"]}},
        {"metadata": {"name": NODE, "ownerReferences": [{"kind": "Pod", "name": "some"}]}},
    ],
    ids=["the spec", "finalizers", "owners"],
)
def test_only_labels_and_annotations_change(change: Object) -> None:
    """In either direction."""
    for new, old in ((node() | change, node()), (node(), node() | change)):
        (told,) = refusals("nodes", new=new, old=old)
        assert "may only write labels and annotations" in told


@pytest.mark.parametrize(("resource", "made"), [("nodes", node()), ("pods", pod())])
def test_neither_nodes_nor_pods_are_created(resource: str, made: Object) -> None:
    """Whatever RBAC says."""
    assert "the agent may create neither nodes nor pods" in refusals(resource, new=made)


def test_no_other_configmap_is_written() -> None:
    """Neither another node's nor one of another kind."""
    for name in (NAME_PREFIX + ELSEWHERE, NAME_PREFIX, "coredns"):
        foreign = {"kind": "ConfigMap", "metadata": {"name": name}}
        for old in (None, foreign):
            (told,) = refusals("configmaps", new=foreign, old=old)
            assert f"may only write the ConfigMap {NAME_PREFIX}{NODE}" in told
