"""The agent of one node labels that node alone, and changes nothing else of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.admission.policy import ELSEWHERE, NODE, Object, Request, policies
from tests.report.chips import CHIPS, every_label
from tests.test_manifests import load

Values = Mapping[str, str]

POLICIES = policies("node-labels")
NONE: Values = MappingProxyType({})


def node(name: str = NODE, *, labels: Values = NONE, annotations: Values = NONE) -> Object:
    """A Node with these labels and annotations."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"podCIDR": "10.0.0.0/24"},
    }


def refusals(*, new: Object | None, old: Object | None = None) -> list[str]:
    """Why the policies refuse a write."""
    asked = Request(resource="nodes", new=new, old=old)
    return [told for policy in POLICIES.values() for told in policy.refusals(asked)]


def test_the_policy_names_just_the_labels_that_are_written() -> None:
    """Each label that a chip can tell."""
    policy = load("node-labels")["ValidatingAdmissionPolicy", "ascend-npu-dra-own-labels"]
    found = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    written = {key for chip in CHIPS for key in every_label(chip)}
    assert set(re.findall(r'"([^"]+)"', found["ownLabels"])) == written


def test_what_the_driver_writes_is_let_through() -> None:
    """Each label that a chip can tell: given, changed and taken away."""
    for chip in CHIPS:
        labels = every_label(chip)
        written = node(labels=labels)
        for old in (node(), node(labels=dict.fromkeys(labels, "x")), written):
            assert refusals(new=written, old=old) == []
        assert refusals(new=node(), old=written) == []


def test_other_keys_may_be_there_unchanged() -> None:
    """Of other components."""
    theirs = {"example.com/theirs": "1"}
    ours = {"npu.huawei.com/model": "Ascend910B"}
    old = node(labels=theirs, annotations=theirs)
    assert refusals(new=node(labels=theirs | ours, annotations=theirs), old=old) == []


@pytest.mark.parametrize(("kind", "words"), [("labels", "this label"), ("annotations", "only")])
def test_other_keys_are_neither_given_nor_changed_nor_taken(kind: str, words: str) -> None:
    """An empty value is a value too."""
    values: list[dict[str, str]] = [{}, {"team": ""}, {"team": "a"}, {"team": "b"}]
    made: Any = node
    for before in values:
        for after in values:
            told = refusals(new=made(**{kind: after}), old=made(**{kind: before}))
            assert [words in each for each in told] == ([] if before == after else [True])


def test_nothing_is_written_elsewhere() -> None:
    """On the Node of another agent."""
    (told,) = refusals(new=node(ELSEWHERE), old=node(ELSEWHERE))
    assert "may only write to that node" in told


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"metadata": {"name": NODE, "finalizers": ["example.com/stay"]}},
        {"metadata": {"name": NODE, "ownerReferences": [{"kind": "Pod", "name": "some"}]}},
    ],
    ids=["the spec", "finalizers", "owners"],
)
def test_only_labels_change(change: Object) -> None:
    """In either direction."""
    for new, old in ((node() | change, node()), (node(), node() | change)):
        (told,) = refusals(new=new, old=old)
        assert "may only write labels" in told


def test_no_node_is_created() -> None:
    """Whatever RBAC says."""
    assert "the agent may create no node" in refusals(new=node())
