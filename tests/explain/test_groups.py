"""Which nodes of a group publish what the others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dev.explain.reasons import SEPARATED, npu
from dev.explain.world import Wire, node, slice_, view_of
from trio_npu_dra.tools.cluster.groups import NodeGroup, groups

if TYPE_CHECKING:
    from tests.explain.conftest import Cluster

LABEL = "example.com/group"


def found(*odd: Wire, **spec: Any) -> list[str]:
    """What is said of n3, beside n1 and n2 with two NPUs."""
    nodes = [node(name, labels={LABEL: "a"}) for name in ("n1", "n2", "n3")]
    slices = [slice_(name, npu(0), npu(1), node=name) for name in ("n1", "n2")]
    own = [slice_("n3", *odd, node="n3", **spec)] if odd else []
    (group,) = groups_of(*nodes, *slices, *own)
    assert [one.differences for one in group.members[:2]] == [(), ()]
    return [f"{one.code}: {one}" for one in group.members[2].differences]


def groups_of(*objects: Wire) -> tuple[NodeGroup, ...]:
    """The groups in a cluster."""
    view = view_of(*objects)
    return groups(view.known_nodes, view.slices, label=LABEL, driver="npu.huawei.com")


def with_facts(number: int, **facts: Any) -> Wire:
    """An NPU with these attributes."""
    made = npu(number)
    return made | {"attributes": made["attributes"] | facts}


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ([npu(0), npu(1)], []),
        ([with_facts(0, uuid={"string": "x"}, superPodId={"int": 3}), npu(1)], []),
        ([npu(0, ring=1), npu(1, ring=1)], []),
        ([], ["DevicesMissing: lacks npu-0, npu-1"]),
        ([npu(0)], ["DevicesMissing: lacks npu-1"]),
        ([npu(0), npu(1), npu(2)], ["DevicesAdded: has npu-2 besides"]),
        (
            [npu(0, memory="64Gi"), npu(1, memory="64Gi")],
            ["FactDiffers: npu-0, npu-1: memCapacity is 64Gi, not 32Gi"],
        ),
        (
            [npu(0), with_facts(1, model={"string": "Ascend950"})],
            ["FactDiffers: npu-1: model is Ascend950, not Ascend910B"],
        ),
        (
            [npu(0), npu(1, ring=1)],
            ["JoinedDifferently: topologyGroup joins other devices"],
        ),
        (
            [npu(0), npu(1) | {"taints": [SEPARATED]}],
            ["DevicesTainted: has taints on npu-1"],
        ),
    ],
)
def test_a_node_differs_in_what_a_template_has(odd: list[Wire], said: list[str]) -> None:
    """Facts of the node's own, and the names of rings, are no difference."""
    assert found(*odd) == said


@pytest.mark.parametrize(
    ("has", "takes", "said"),
    [
        ("4", "1", []),
        ("2", "1", ["has other amounts in the counter sets npu-0"]),
        ("4", "2", ["npu-0: counter slots is 2, not 1"]),
    ],
)
def test_counters_are_compared(has: str, takes: str, said: list[str]) -> None:
    """What there is, and what a device takes of it."""

    def counted(name: str, has: str, takes: str) -> list[Wire]:
        slots = {"slots": {"value": has}}, {"slots": {"value": takes}}
        device = npu(0) | {"consumesCounters": [{"counterSet": "npu-0", "counters": slots[1]}]}
        sets = [{"name": "npu-0", "counters": slots[0]}]
        slice_of_it = slice_(name, device, node=name, sharedCounters=sets)
        return [node(name, labels={LABEL: "a"}), slice_of_it]

    (group,) = groups_of(*counted("n1", "4", "1"), *counted("n2", has, takes))
    assert list(group.members[1].differences) == said


def test_a_pool_that_is_not_whole_is_compared_with_nothing() -> None:
    """Its flaw is said instead, also if most pools are so."""
    said = found(npu(0), npu(1), count=2)
    assert len(said) == 1
    assert said[0].startswith("PoolIncomplete: ")


def test_a_node_without_devices_is_the_odd_one() -> None:
    """However many there are, such as nodes that have just started."""
    nodes = [node(name, labels={LABEL: "a"}) for name in ("n1", "n2", "n3")]
    (group,) = groups_of(*nodes, slice_("s", npu(0), node="n3"))
    assert [list(one.differences) for one in group.members] == [["lacks npu-0"]] * 2 + [[]]


def test_groups_are_made_by_the_label() -> None:
    """Without nodes that lack it, and without groups that have no devices."""
    nodes = [
        node("n1", labels={LABEL: "a"}),
        node("n2", labels={LABEL: "b"}),
        node("n3", labels={LABEL: "no-npus"}),
        node("n4"),
    ]
    slices = [slice_(name, npu(0), node=name) for name in ("n1", "n2", "n4")]
    made = groups_of(*nodes, *slices)
    assert [(one.name, [each.node for each in one.members]) for one in made] == [
        ("a", ["n1"]),
        ("b", ["n2"]),
    ]


def test_a_label_that_no_node_has_is_an_error(cluster: Cluster) -> None:
    """Else it would look as if nothing differed."""
    status, out, err = cluster.run("groups", "no.such/label")
    assert (status, out) == (1, "")
    assert "no node with devices of driver 'npu.huawei.com' has the label no.such/label" in err
