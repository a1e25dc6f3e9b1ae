"""The agent of one node writes the slices of that node, of this driver, in that node's pool."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admission.policy import ELSEWHERE, NODE, Object, Request, policies

POLICY = policies("base")["ascend-npu-dra-own-node-only"]
NODES = "may only write the slices of that node"
DRIVERS = "may only write slices of the driver npu.huawei.com"
POOLS = f"may only write the pool of that name, not {ELSEWHERE}"


def stored(**spec: Any) -> Object:
    """A slice like ours; `spec` says what is different."""
    ours = {"nodeName": NODE, "driver": "npu.huawei.com", "pool": {"name": NODE}}
    return {"kind": "ResourceSlice", "metadata": {"name": "some"}, "spec": ours | spec}


def refusals(*, new: Object | None = None, old: Object | None = None) -> list[str]:
    """Why the policy refuses a write of slices."""
    asked = Request(resource="resourceslices", group="resource.k8s.io", new=new, old=old)
    return POLICY.refusals(asked)


def test_own_slices_are_written() -> None:
    """Created, replaced and deleted; also deleted if they are in a wrong pool."""
    assert refusals(new=stored()) == []
    assert refusals(new=stored(devices=[]), old=stored()) == []
    assert refusals(old=stored()) == []
    assert refusals(old=stored(pool={"name": ELSEWHERE})) == []


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        ({"nodeName": ELSEWHERE}, NODES),
        ({"nodeName": None, "allNodes": True}, NODES),
        ({"driver": "gpu.example.com"}, DRIVERS),
    ],
    ids=["another node's", "all nodes'", "another driver's"],
)
def test_foreign_slices_are_neither_made_nor_changed_nor_deleted(
    difference: Object, words: str
) -> None:
    """Nor is a foreign one made the own, or the own a foreign one."""
    foreign = stored(**difference)
    for asked in (
        {"new": foreign},
        {"old": foreign},
        {"new": foreign, "old": foreign},
        {"new": stored(), "old": foreign},
        {"new": foreign, "old": stored()},
    ):
        (told,) = refusals(**asked)
        assert words in told


def test_no_slice_gets_into_another_nodes_pool() -> None:
    """A newer generation there would hide that node's devices."""
    foreign = stored(pool={"name": ELSEWHERE})
    for old in (None, stored()):
        (told,) = refusals(new=foreign, old=old)
        assert POOLS in told
