"""The agent writes what its driver says of devices, in claims that are allocated on its node."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.admission.policy import ELSEWHERE, NODE, Object, Request, policies

POLICY = policies("base")["ascend-npu-dra-own-claims"]
NODES = "may only write the status of claims that are allocated on that node"
ALLOCATION = "may change neither allocations nor reservations"
DRIVERS = "may only write what the driver npu.huawei.com says of devices"
POD = {"resource": "pods", "name": "p", "uid": "u"}


def said(device: str, driver: str = "npu.huawei.com", **more: Any) -> Object:
    """What a driver says of a device."""
    return {"driver": driver, "pool": NODE, "device": device} | more


def terms(*nodes: str, field: str = "metadata.name", operator: str = "In") -> list[Object]:
    """Terms of a node selector, as the scheduler writes them."""
    return [{"matchFields": [{"key": field, "operator": operator, "values": [*nodes]}]}]


def claim(*devices: Object, on: list[Object] | None = None, **status: Any) -> Object:
    """A claim that is allocated and reserved."""
    allocation = {"devices": {"results": []}, "nodeSelector": {"nodeSelectorTerms": on}}
    known: Object = {"allocation": allocation, "reservedFor": [POD], "devices": [*devices]}
    if on is None:
        allocation["nodeSelector"] = {"nodeSelectorTerms": terms(NODE)}
    return {"kind": "ResourceClaim", "metadata": {"name": "c"}, "status": known | status}


GPU = said("gpu-0", "gpu.example.com")


def refusals(new: Object, old: Object) -> list[str]:
    """Why the policy refuses a write of a claim's status."""
    asked = Request(resource="resourceclaims/status", group="resource.k8s.io", new=new, old=old)
    return POLICY.refusals(asked)


def test_own_devices_are_written() -> None:
    """The first time, changed, and removed, beside those of others."""
    bare = claim()
    del bare["status"]["devices"]
    assert refusals(claim(said("npu-0")), bare) == []
    assert refusals(claim(GPU, said("npu-0", data=1)), claim(GPU, said("npu-0"))) == []
    assert refusals(claim(GPU), claim(said("npu-0"), GPU)) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"devices": [GPU]}, DRIVERS),
        ({"reservedFor": []}, ALLOCATION),
        ({"reservedFor": None}, ALLOCATION),
        ({"allocation": None}, ALLOCATION),
        ({"allocation": {"devices": {"results": [said("npu-1")]}}}, ALLOCATION),
    ],
    ids=["another driver's", "released", "without", "deallocated", "allocated anew"],
)
def test_nothing_else_is_changed(changed: Object, words: str) -> None:
    """Neither way: what the claim has does not go, and what it has not does not come."""
    plain, other = claim(said("npu-0")), claim(said("npu-0"))
    other["status"] |= changed
    other["status"] = {key: value for key, value in other["status"].items() if value is not None}
    for new, old in ((plain, other), (other, plain)):
        assert any(words in told for told in refusals(copy.deepcopy(new), copy.deepcopy(old)))


@pytest.mark.parametrize(
    "on",
    [
        [],
        terms(ELSEWHERE),
        terms(NODE, ELSEWHERE),
        [*terms(NODE), *terms(ELSEWHERE)],
        terms(NODE, operator="NotIn"),
        terms(NODE, field="metadata.namespace"),
        [{"matchExpressions": [{"key": "a", "operator": "In", "values": [NODE]}]}],
    ],
    ids=str,
)
def test_claims_elsewhere_are_left_alone(on: list[Object]) -> None:
    """The allocation names just this node; one that has no node is nobody's."""
    for old in (claim(on=on), claim(on=on) | {"status": {}}):
        new = copy.deepcopy(old)
        new["status"]["devices"] = [said("npu-0")]
        assert any(NODES in told for told in refusals(new, old))
