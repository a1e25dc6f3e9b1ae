"""A cluster of two nodes for the command's own outputs: rings, holders, an unhealthy NPU, a pod."""

from __future__ import annotations

from dev.explain.reasons import MEMORY, RING, SEPARATED, held, npu
from dev.explain.world import Wire, ask, claim, class_, node, pod, slice_


def _npu(number: int, **more: str) -> Wire:
    """An NPU with what the topology is drawn from."""
    made = npu(number, ring=number // 4, **more)
    numa = 0 if number < 4 else 1
    made["attributes"] |= {"physicalId": {"int": number}, "numaNode": {"int": numa}}
    return made


def scene() -> list[Wire]:
    """n1 has eight NPUs of 64Gi, six of them held; n2 has four of 32Gi, one of them unhealthy."""
    unhealthy = _npu(3)
    unhealthy["taints"] = [{**SEPARATED, "timeAdded": "2026-11-22T08:15:02Z"}]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "n2.1", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n2"},
        "type": "Warning",
        "reason": "NpuFault",
        "message": "npu-3: 80E18402 HBM (SeparateNPU, fault table), since 2026-11-22T08:15:02Z",
        "count": 2,
        "lastTimestamp": "2026-11-22T08:15:02Z",
    }
    tight = [{**RING}]
    return [
        *(node(name, labels={"node.kubernetes.io/instance-type": "ki1"}) for name in ("n1", "n2")),
        class_(),
        slice_("n1-0", *(_npu(number, memory="64Gi") for number in range(8))),
        slice_("n2-0", _npu(0), _npu(1), _npu(2), unhealthy, node="n2"),
        held(0, 1, 2, 3, name="train", node="n1"),
        held(4, 5, name="infer", node="n1"),
        held(3, name="eval", node="n2"),
        claim("large", ask(MEMORY, count=4), constraints=tight),
        pod("large", "large"),
        pod("train-0", "train", nodeName="n1", status={"phase": "Running"}),
        event,
    ]


def super_pods() -> list[Wire]:
    """Two super pods with two nodes each, and a Job of three pods with four NPUs each."""
    nodes = {"a1": 3, "a2": 3, "b1": 7, "b2": 7}
    npus = {name: [npu(number) for number in range(4)] for name in nodes}
    for name, super_pod in nodes.items():
        for each in npus[name]:
            each["attributes"]["superPodId"] = {"int": super_pod}
    workers = []
    for number in range(3):
        worker = pod(f"train-{number}", f"train-{number}")
        worker["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "train"}
        workers += [worker, claim(f"train-{number}", ask(count=4))]
    return [
        *map(node, nodes),
        class_(),
        *(slice_(name, *npus[name], node=name) for name in nodes),
        held(0, name="infer", node="a1"),
        held(2, name="eval", node="b2"),
        *workers,
    ]
