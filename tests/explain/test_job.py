"""Whether a job fits into one super pod, and what is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dev.explain.reasons import held, npu
from dev.explain.scene import super_pods
from dev.explain.world import (
    DRIVER,
    Wire,
    allocated,
    ask,
    claim,
    class_,
    device,
    node,
    pod,
    slice_,
    view_of,
)
from trio_npu_dra.tools.cluster import pools
from trio_npu_dra.tools.cluster.explain.job import JobExplanation, explain_job
from trio_npu_dra.tools.cluster.objects import Pod

if TYPE_CHECKING:
    from tests.explain.conftest import Cluster
    from trio_npu_dra.kit.api.objects import FullNode
    from trio_npu_dra.tools.cluster.inventory import PoolId
    from trio_npu_dra.tools.cluster.pools import NodePool

NODES = {"a1": 3, "a2": 3, "b1": 7}


def cluster_of(*, count: int = 2) -> list[Wire]:
    """Super pod 3 has two nodes, 7 has one, each with so many NPUs."""
    made: list[Wire] = [class_()]
    for name, super_pod in NODES.items():
        npus = [npu(number) for number in range(count)]
        for each in npus:
            each["attributes"]["superPodId"] = {"int": super_pod}
        made += [node(name), slice_(name, *npus, node=name)]
    return made


def worker(number: int, *, count: int = 2, on: str = "") -> list[Wire]:
    """A pod of the job and its claim, on a node or waiting."""
    wants = claim(f"c{number}", ask(count=count))
    if not on:
        return [pod(f"w{number}", f"c{number}"), wants]
    has = allocated(wants, *(f"npu-{at}" for at in range(count)), node=on)
    return [pod(f"w{number}", f"c{number}", nodeName=on), has]


def explained(*objects: Wire) -> JobExplanation:
    """The explanation of a job that has all pods there are."""
    pods = [Pod.model_validate(one) for one in objects if one["kind"] == "Pod"]
    return explain_job(pods, view_of(*objects), driver=DRIVER)


def room(said: JobExplanation) -> dict[int | None, tuple[int, int]]:
    """How many pods are in each super pod, and how many more fit."""
    return {one.id: (one.placed, one.fits) for one in said.super_pods}


@pytest.mark.parametrize(
    ("more", "outcome", "fits", "sentence"),
    [
        (
            [*worker(0), *worker(1)],
            "Free",
            {3: (0, 2), 7: (0, 1)},
            "there is room for its 2 pods in super pod 3",
        ),
        (
            [*worker(0, count=1), *worker(1, count=1)],
            "Free",
            {3: (0, 2), 7: (0, 2)},
            "there is room for its 2 pods in super pods 3, 7",
        ),
        (
            [*worker(0, on="a1"), *worker(1)],
            "Free",
            {3: (1, 1), 7: (0, 1)},
            "there is room for its 2 pods in super pod 3",
        ),
        (
            [*worker(0, on="b1"), *worker(1)],
            "Waits",
            {3: (0, 1), 7: (1, 0)},
            "there is no room for its 2 pods in one super pod; most, 1, fit in super pod 7",
        ),
        (
            [*worker(0), *worker(1), held(0, name="x", node="a2")],
            "Waits",
            {3: (0, 1), 7: (0, 1)},
            "there is no room for its 2 pods in one super pod; most, 1, fit in super pod 3",
        ),
        (
            [*worker(0, on="b1"), *worker(1), *worker(2)],
            "Waits",
            {3: (0, 2), 7: (1, 0)},
            "there is no room for its 3 pods in one super pod; most, 2, fit in super pod 3",
        ),
        (
            [*worker(0, on="a1"), *worker(1, on="b1")],
            "Given",
            {3: (1, 0), 7: (1, 0)},
            "its 2 pods with devices have nodes in super pods 3, 7",
        ),
        (
            [*worker(0), *worker(1), pod("launcher", nodeName="a1")],
            "Free",
            {3: (0, 2), 7: (0, 1)},
            "there is room for its 2 pods in super pod 3",
        ),
    ],
)
def test_pods_are_placed_one_after_the_other(
    more: list[Wire], outcome: str, fits: dict[int | None, tuple[int, int]], sentence: str
) -> None:
    """Beside those that run, and without pods that ask for no devices."""
    said = explained(*cluster_of(), *more)
    assert (said.outcome, room(said), said.sentence) == (outcome, fits, sentence)


def test_the_pod_that_has_no_room_is_explained() -> None:
    """As if the pods before it had their NPUs, on the nodes of the super pod with most room."""
    said = explained(*cluster_of(), *worker(0), *worker(1), *worker(2))
    assert said.blocked is not None
    assert said.blocked.subject == "pod default/w2"
    assert [name for name, _ in said.blocked.nodes] == ["a1", "a2"]
    assert "held by claim default/c0" in said.blocked.sentence


def test_pools_are_built_once_for_all_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each pod: a job may have hundreds, and its cluster as many nodes."""
    build, seen = pools._pool, list[str]()

    def counted(id_: PoolId, near: Any, all_of_it: Any, node: FullNode) -> NodePool | None:
        seen.append(node.metadata.name)
        return build(id_, near, all_of_it, node)

    monkeypatch.setattr(pools, "_pool", counted)
    said = explained(*cluster_of(count=8), *(one for number in range(4) for one in worker(number)))
    assert room(said) == {3: (0, 4), 7: (0, 4)}
    assert seen == [*NODES]


def test_nodes_without_a_super_pod_are_one_place() -> None:
    """Such as all nodes of 910B."""
    said = explained(class_(), node("n1"), slice_("s1", npu(0)), *worker(0, count=1))
    assert room(said) == {None: (0, 1)}
    assert said.sentence == "there is room for its 1 pod outside of super pods"


def test_a_gate_that_waits_for_room_is_open() -> None:
    """A queue or a gang closes it; whether there is room is the question."""
    gated = pod("w0", "c0", schedulingGates=[{"name": "kueue"}])
    said = explained(*cluster_of(), gated, claim("c0", ask(count=2)))
    assert said.outcome == "Free"


def test_pods_of_one_claim_go_to_one_node() -> None:
    """The second takes no more devices, and goes where the first has gone."""
    pods = [pod(f"w{number}", "c0") for number in range(2)]
    said = explained(*cluster_of(), *pods, claim("c0", ask(count=2)), *worker(2))
    assert room(said)[3] == (0, 3)
    assert room(said)[7] == (0, 2)


def test_what_pods_take_besides_devices_counts() -> None:
    """Two pods with most CPUs of a node do not fit on it, though its NPUs would do."""
    big = {"requests": {"cpu": "40"}}
    pods = []
    for number in range(3):
        wants = pod(f"w{number}", f"c{number}")
        wants["spec"]["containers"][0]["resources"] = big
        pods += [wants, claim(f"c{number}", ask(count=1))]
    assert room(explained(*cluster_of(count=4), *pods)) == {3: (0, 2), 7: (0, 1)}


def test_pods_without_claims_and_shares_take_their_part() -> None:
    """The scheduler makes a claim for a resource; a share leaves the rest of its NPU."""
    counted = class_(DRIVER, extendedResourceName="huawei.com/npu")
    shared = device(
        "npu-0",
        {"superPodId": 3},
        {"memCapacity": {"value": "32Gi", "requestPolicy": {"default": "16Gi"}}},
        allowMultipleAllocations=True,
    )
    pods = [pod(f"w{number}") for number in range(3)]
    for each in pods:
        each["spec"]["containers"][0]["resources"] = {"limits": {"huawei.com/npu": "1"}}
    said = explained(counted, node("a1"), slice_("a1", shared, node="a1"), *pods)
    assert room(said) == {3: (0, 2)}


def test_the_pods_of_a_job_have_its_label(cluster: Cluster) -> None:
    """Those that end do not count, nor do those of another namespace."""
    other = pod("other", "train-0")
    other["metadata"] |= {"namespace": "lab", "labels": {"batch.kubernetes.io/job-name": "train"}}
    cluster.api.objects[:] = [*super_pods(), other]
    _, out, _ = cluster.run("explain", "job/train")
    first, *_ = out.splitlines()
    assert first == (
        "job default/train waits: there is no room for its 3 pods in one super pod; most, 1, fit "
        "in super pod 3"
    )
    assert "pod default/train-1 waits: request npu of claim default/train-1" in out
    assert "when pod infer-0 ends (claim default/infer), on a1" in out
    assert "(claim default/train" not in out
    assert cluster.run("explain", "jobset/train")[::2] == (
        1,
        "kubectl npu: jobset train in namespace default has no pod that runs or waits\n",
    )
