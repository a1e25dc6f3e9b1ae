"""Each policy about the agent fails closed, and together they cover every right to write."""

from __future__ import annotations

import pytest

from tests.admission.policy import AGENT, NODE, Object, Request, policies
from tests.test_manifests import load, pod_spec

FOLDERS = ("base", "node-labels")
OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
READING = {"get", "list", "watch"}
CONFIGS = "ascend-npu-dra-config"
OURS = {name: policy for name, policy in policies(*FOLDERS).items() if name != CONFIGS}
BROKEN: Object = {"kind": "Some", "metadata": {}, "spec": None}


def asked(name: str, *, user: str = AGENT, node: str | None = NODE) -> Request:
    """A write that a policy is about, of an object in which nothing is as it should be."""
    rule = OURS[name].spec["matchConstraints"]["resourceRules"][0]
    return Request(
        resource=rule["resources"][0],
        group=rule["apiGroups"][0],
        new=BROKEN,
        old=BROKEN if "CREATE" not in rule["operations"] else None,
        user=user,
        node=node,
    )


def test_account_is_that_of_the_daemonset() -> None:
    """The one to which the rights are given, too."""
    objects = load(*FOLDERS)
    account = objects["ServiceAccount", pod_spec(objects)["serviceAccountName"]]["metadata"]
    assert AGENT.split(":")[2:] == [account["namespace"], account["name"]]
    for (kind, _), about in objects.items():
        if kind.endswith("RoleBinding"):
            (subject,) = about["subjects"]
            assert {key: subject[key] for key in account} == account


def test_every_policy_refuses() -> None:
    """One without a binding, or with another action, would not."""
    objects = load(*FOLDERS)
    actions = {
        about["spec"]["policyName"]: about["spec"]["validationActions"]
        for (kind, _), about in objects.items()
        if kind == "ValidatingAdmissionPolicyBinding"
    }
    assert actions == {name: ["Deny"] for name in (*OURS, CONFIGS)}


@pytest.mark.parametrize("name", OURS)
def test_what_cannot_be_judged_is_refused(name: str) -> None:
    """An error in a policy stops the agent, and nothing else."""
    assert OURS[name].spec["failurePolicy"] == "Fail"
    assert OURS[name].refusals(asked(name))
    assert OURS[name].refusals(asked(name, user="system:node:node-a")) == []


@pytest.mark.parametrize("name", OURS)
def test_token_without_a_node_writes_nothing(name: str) -> None:
    """It is bound to no pod, so its origin is unknown."""
    told = OURS[name].refusals(asked(name, node=None))
    assert any("names no node" in each or "the agent on node  may" in each for each in told)


def test_no_right_to_write_is_without_a_policy() -> None:
    """RBAC cannot tell nodes apart: for each verb a policy about the agent is asked."""
    rights = {
        (verb, group, resource)
        for (kind, _), about in load(*FOLDERS).items()
        if kind in {"ClusterRole", "Role"}
        for rule in about["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if ":" not in verb  # the API server asks for it beside another one
    }
    writes = {right for right in rights if right[0] not in READING}
    assert {verb for verb, _, _ in writes} <= OPERATIONS.keys()
    for verb, group, resource in writes:
        rules = [
            rule
            for policy in OURS.values()
            for rule in policy.spec["matchConstraints"]["resourceRules"]
            if group in rule["apiGroups"] and resource in rule["resources"]
        ]
        assert any(OPERATIONS[verb] in rule["operations"] for rule in rules), (verb, resource)
