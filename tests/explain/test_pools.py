"""Which devices a node sees, and what an allocation takes of them, by the scheduler's rules."""

from __future__ import annotations

from typing import Any

import pytest

from dev.explain.world import Wire, device, node, slice_
from trio_npu_dra.kit.api.objects import FullNode
from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.tools.cluster.objects import AnyDevice, AnySlice
from trio_npu_dra.tools.cluster.pools import NodePool, fits, pools_by_node, share_of

ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
HERE = {"nodeSelectorTerms": [ZONE]}
THERE = {
    "nodeSelectorTerms": [{"matchExpressions": [{**ZONE["matchExpressions"][0], "values": ["b"]}]}]
}


def seen(*slices: Wire, name: str = "n1") -> tuple[NodePool, ...]:
    """What a node in zone a sees."""
    here = FullNode.model_validate(node(name, labels={"zone": "a"}))
    return pools_by_node([here], [AnySlice.model_validate(one) for one in slices])[name]


def names(*slices: Wire) -> list[str]:
    """The devices that it can have."""
    return [one.id.name for pool in seen(*slices) if not pool.flaw for one in pool.devices]


@pytest.mark.parametrize(
    ("spec", "is_seen"),
    [
        ({"node": "n1"}, True),
        ({"node": "n2"}, False),
        ({"node": "", "allNodes": True}, True),
        ({"node": "", "nodeSelector": HERE}, True),
        ({"node": "", "nodeSelector": THERE}, False),
        ({"node": ""}, False),
    ],
)
def test_slices_are_for_nodes(spec: dict[str, Any], is_seen: bool) -> None:
    """By name, by labels, or for all; what says nothing of that is for none."""
    assert names(slice_("s", device("x"), pool="p", **spec)) == ["x"] * is_seen


def test_devices_may_say_themselves_where_they_are() -> None:
    """Those of other nodes still take counters."""
    devices = [
        device("a", nodeName="n1"),
        device("b", nodeName="n2"),
        device("c", allNodes=True),
        device("d", nodeSelector=HERE),
        device("e", nodeSelector=THERE),
    ]

    (pool,) = seen(slice_("s", *devices, node="", pool="p", perDeviceNodeSelection=True))

    assert [one.id.name for one in pool.devices] == ["a", "c", "d"]
    assert [one.id.name for one in pool.others] == ["b", "e"]


def test_the_newest_generation_counts() -> None:
    """An older one is no part of the pool; one that only other nodes see hides it."""
    old, new = slice_("a", device("old")), slice_("b", device("new"), generation=2)
    elsewhere = slice_("c", device("x"), generation=3, node="n2", pool="n1", count=2)

    assert names(old, new) == ["new"]
    assert names(slice_("a", device("old"), count=2), elsewhere) == []
    assert seen(slice_("a", device("old"), count=2), elsewhere) == ()


@pytest.mark.parametrize(
    ("slices", "flaw"),
    [
        ([slice_("a", device("x"), count=2)], "only 1 of its 2 slices are published"),
        (
            [slice_("a", device("x"), count=2), slice_("b", device("x"), count=2)],
            "several devices have the name x",
        ),
        (
            [
                slice_(
                    "a",
                    device(
                        "x",
                        consumesCounters=[{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
                    ),
                )
            ],
            "x takes from s/c, a counter that is not there",
        ),
        (
            [
                slice_("a", sharedCounters=[{"name": "s", "counters": {}}], count=2),
                slice_("b", sharedCounters=[{"name": "s", "counters": {}}], count=2),
            ],
            "several counter sets have one name",
        ),
    ],
)
def test_nothing_is_had_of_a_flawed_pool(slices: list[Wire], flaw: str) -> None:
    """The flaw is named."""
    (pool,) = seen(*slices)

    assert pool.flaw == flaw


def test_older_schedulers_see_counters_of_other_nodes() -> None:
    """A pool of another node that is not complete is seen by its counters."""
    counters = slice_("c", node="n2", sharedCounters=[{"name": "s", "counters": {}}], count=2)
    here = FullNode.model_validate(node("n1"))
    slices = [AnySlice.model_validate(one) for one in (counters, slice_("a", device("x")))]

    new, old = (pools_by_node([here], slices, minor=minor)["n1"] for minor in (37, 36))

    assert [pool.id.name for pool in new] == ["n1"]
    assert [(pool.id.name, bool(pool.flaw)) for pool in old] == [("n1", False), ("n2", True)]


def test_pools_and_slices_have_an_order() -> None:
    """By driver and name; pools whose devices have binding conditions come last."""
    binding = device("x", bindingConditions=["ready"], bindingFailureConditions=["failed"])
    slices = (
        slice_("z", device("b1"), pool="b", count=2),
        slice_("y", device("b0"), pool="b", count=2),
        slice_("x", binding, pool="a"),
        slice_("w", device("c0"), driver="a.example.com"),
    )

    assert names(*slices) == ["c0", "b0", "b1", "x"]


RANGE = {"default": "8Gi", "validRange": {"min": "4Gi", "step": "4Gi", "max": "16Gi"}}
VALUES = {"default": "1", "validValues": ["1", "2", "4"]}


@pytest.mark.parametrize(
    ("policy", "asked", "amount"),
    [
        (None, None, "32Gi"),
        (None, "5Gi", "5Gi"),
        (RANGE, None, "8Gi"),
        (RANGE, "1Gi", "4Gi"),
        (RANGE, "9Gi", "12Gi"),
        (RANGE, "17Gi", None),
        ({"default": "8Gi", "validRange": {"min": "4Gi"}}, "5Gi", "5Gi"),
        (VALUES, "3", "4"),
        (VALUES, "5", None),
    ],
)
def test_what_a_share_takes(policy: Wire | None, asked: str | None, amount: str | None) -> None:
    """A request is rounded up to what the policy allows; more than that is refused."""
    capacity: Wire = {"value": "32Gi"} | ({"requestPolicy": policy} if policy else {})
    shared = AnyDevice.model_validate(device("x", {}, {"memory": capacity}))

    share = share_of(shared, {"memory": asked} if asked else {})

    assert share == ({"memory": parse_quantity(amount)} if amount else None)
    if share is not None:
        assert fits(shared, share, {"memory": parse_quantity("32Gi") - share["memory"]})
        assert not fits(shared, share, {"memory": parse_quantity("33Gi") - share["memory"]})


def test_a_capacity_that_is_not_there_cannot_be_asked_for() -> None:
    """Whatever the device has else."""
    assert share_of(AnyDevice(name="x"), {"memory": "1"}) is None
