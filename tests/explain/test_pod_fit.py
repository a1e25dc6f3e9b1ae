"""What keeps a pod from a node, apart from devices."""

from __future__ import annotations

from typing import Any

import pytest

from dev.explain.world import Wire, class_, node, pod, view_of
from trio_npu_dra.kit.api.objects import FullNode
from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.tools.cluster.explain.case import from_devices, not_weighed, obstacles, used
from trio_npu_dra.tools.cluster.objects import Pod, Requirement, requirement_holds
from trio_npu_dra.tools.cluster.pools import quantity_words

NAME = "huawei.com/Ascend910"
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
GPU = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}


def containers(*requests: Wire) -> list[Wire]:
    """Containers with those requests."""
    return [{"name": str(at), "resources": {"requests": one}} for at, one in enumerate(requests)]


def kept_by(about: Wire, *others: Wire, **spec: Any) -> list[str]:
    """What keeps a pod with that spec from a node, beside other pods."""
    mine = Pod.model_validate(pod("train", **spec))
    usage = used([Pod.model_validate(one) for one in others])
    return list(obstacles(mine, FullNode.model_validate(about), usage, frozenset()))


@pytest.mark.parametrize(
    ("about", "spec", "said"),
    [
        (node("n1"), {}, []),
        (node("n1", unschedulable=True), {}, ["is cordoned"]),
        (node("n1", unschedulable=True, taints=[CORDONED]), {}, ["is cordoned"]),
        (
            node("n1", unschedulable=True, taints=[CORDONED, GPU]),
            {"tolerations": [{"key": CORDONED["key"], "operator": "Exists"}]},
            ["has the taint dedicated=train:NoSchedule, which the pod does not tolerate"],
        ),
        (node("n1", unschedulable=True), {"tolerations": [{"operator": "Exists"}]}, []),
        (
            node("n1", taints=[GPU]),
            {},
            ["has the taint dedicated=train:NoSchedule, which the pod does not tolerate"],
        ),
        (
            node("n1", taints=[GPU]),
            {"tolerations": [{"key": "dedicated", "value": "train"}]},
            [],
        ),
        (node("n1", taints=[{**GPU, "effect": "PreferNoSchedule"}]), {}, []),
        (
            node("n1"),
            {"nodeSelector": {"zone": "a"}},
            ["is not zone=a, as the pod's nodeSelector wants"],
        ),
        (
            node("n1"),
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
                            ]
                        }
                    }
                }
            },
            ["is not what the pod's node affinity wants"],
        ),
        (
            node("n1", allocatable={"cpu": "4"}),
            {"containers": containers({"cpu": "3"}, {"cpu": "1500m"})},
            ["has 4 of 4 cpu left, and the pod wants 4.5"],
        ),
        (
            node("n1", allocatable={"cpu": "4"}),
            {"containers": containers({"cpu": "3"}), "initContainers": containers({"cpu": "4"})},
            [],
        ),
        (
            node("n1", allocatable={"cpu": "4"}),
            {"containers": containers({"cpu": "8"}), "resources": {"requests": {"cpu": "2"}}},
            [],
        ),
        (
            node("n1"),
            {"containers": containers({"example.com/fpga": "1"})},
            ["has no example.com/fpga"],
        ),
        (node("n1"), {"containers": containers({"example.com/fpga": "0"})}, []),
    ],
)
def test_obstacles(about: Wire, spec: Wire, said: list[str]) -> None:
    """Labels, taints and resources, each by itself."""
    assert kept_by(about, **spec) == said


def test_pods_that_have_ended_use_nothing() -> None:
    """The others use what they request, and a place."""
    small = node("n1", allocatable={"cpu": "4", "pods": "2"})
    running = pod("a", nodeName="n1", containers=containers({"cpu": "3"}))
    ended = pod("b", nodeName="n1", containers=containers({"cpu": "3"}), status={"phase": "Failed"})
    wants = {"containers": containers({"cpu": "1"})}

    assert kept_by(small, running, ended, **wants) == []
    assert kept_by(small, running, running, **wants) == [
        "has 0 of 2 pods left, and the pod wants 1",
        "has 0 of 4 cpu left, and the pod wants 1",
    ]


def test_resources_are_not_weighed_while_other_pods_are_unknown() -> None:
    """Another part of the explanation reports that."""
    mine = Pod.model_validate(pod("train", containers=containers({"cpu": "65"})))
    here = FullNode.model_validate(node("n1"))

    unknown, none = (list(obstacles(mine, here, used(pods), frozenset())) for pods in (None, ()))
    assert (len(unknown), len(none)) == (0, 1)


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ["5"], True),
        ("NotIn", ["5"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["4"], True),
        ("Lt", ["4"], False),
        ("Gt", ["x"], False),
        ("Near", ["5"], False),
    ],
)
def test_operators(operator: str, values: list[str], holds: bool) -> None:
    """Those of Kubernetes; what is not known holds for nothing."""
    line = Requirement(key="size", operator=operator, values=tuple(values))

    assert requirement_holds(line, {"size": "5"}) is holds


def test_what_is_not_weighed_is_said() -> None:
    """Only of a pod that has it."""
    plain = Pod.model_validate(pod("train"))
    special = Pod.model_validate(
        pod(
            "train",
            schedulerName="volcano",
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
            topologySpreadConstraints=[{"maxSkew": 1}],
        )
    )

    on_nodes = Pod.model_validate(pod("train", affinity={"nodeAffinity": {}}))

    assert list(not_weighed(plain)) == list(not_weighed(on_nodes)) == []
    assert len(list(not_weighed(special))) == 3


def test_an_init_container_runs_beside_the_sidecars_that_started_before_it() -> None:
    """Those that come later do not count for it."""
    sidecar = {"name": "log", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    (setup,) = containers({"cpu": "4"})
    small = node("n1", allocatable={"cpu": "4"})

    assert kept_by(small, initContainers=[setup, sidecar]) == []
    assert kept_by(small, initContainers=[sidecar, setup]) == [
        "has 4 of 4 cpu left, and the pod wants 5"
    ]


@pytest.mark.parametrize(
    ("counted", "minor", "by_claim"),
    [({}, 34, True), ({NAME: "0"}, 34, False), ({NAME: "0"}, 36, True), ({NAME: "8"}, 36, False)],
)
def test_a_resource_that_no_plugin_has_left_is_asked_of_the_class(
    counted: Wire, minor: int, by_claim: bool
) -> None:
    """A kubelet whose plugin has gone shows 0, which the scheduler takes for none since 1.36."""
    view = view_of(class_(extendedResourceName=NAME), minor=minor)
    mine = Pod.model_validate(pod("train", containers=containers({NAME: "1"})))
    here = FullNode.model_validate(node("n1", allocatable=counted))

    assert from_devices(mine, here, view) == ({NAME} if by_claim else set())


def test_words_are_canonical_where_a_binary_suffix_divides_the_amount() -> None:
    """Else they are a plain number."""
    words = [quantity_words(parse_quantity(one)) for one in ("32768Mi", "4", "1500m", "1000")]
    assert words == ["32Gi", "4", "1.5", "1000"]
