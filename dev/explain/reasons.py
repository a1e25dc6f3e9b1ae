"""Pods that wait, each for another reason; each case is a small cluster of its own.

The table in docs/kubectl-npu.md is made of them, and the real scheduler is asked about them too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
    taint_rule,
    view_of,
    with_results,
)
from trio_npu_dra.tools.cluster.explain.answer import Explanation, explain_pod
from trio_npu_dra.tools.cluster.objects import Pod
from trio_npu_dra.tools.cluster.said import Outcome

MEMORY = f'device.capacity["{DRIVER}"].memCapacity.compareTo(quantity("64Gi")) >= 0'
RING = {"matchAttribute": f"{DRIVER}/topologyGroup"}
SEPARATED = {"key": f"{DRIVER}/fault", "value": "SeparateNPU", "effect": "NoExecute"}
DRAINED = {"key": "example.com/maintenance", "effect": "NoExecute"}
TRAIN = claim("train", ask())


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A reason to wait.

    Attributes:
        title: A short text.
        objects: The cluster, without the pod.
        pod: The pod `train` that waits.
        outcome: That of the explanation.
        since: The first Kubernetes version with the features that it needs.
    """

    title: str
    objects: tuple[Wire, ...]
    pod: Wire = field(default_factory=lambda: pod("train", "train"))
    outcome: Outcome = Outcome.WAITS
    since: str = "1.34"

    def explained(self) -> Explanation:
        """The explanation of the pod."""
        made = [one for one in self.objects if one["kind"] == "DeviceClass"]
        classes = made or [class_()]
        others = [one for one in self.objects if one["kind"] != "DeviceClass"]
        return explain_pod(Pod.model_validate(self.pod), view_of(*classes, *others, self.pod))


def npu(number: int, *, ring: int = 0, memory: str = "32Gi", **more: Any) -> Wire:
    """An NPU, as the driver publishes it, with less to say."""
    attributes: dict[str, str | int | bool] = {
        "type": "npu",
        "model": "Ascend910B",
        "chipName": "910B4",
        "topologyGroup": f"ring-{ring}",
    }
    return device(f"npu-{number}", attributes, {"memCapacity": memory}, **more)


def held(*numbers: int, name: str = "infer", node: str = "n1") -> Wire:
    """A claim of a pod `infer-0` that has those NPUs."""
    made = claim(name, ask(count=len(numbers)))
    return allocated(made, *(f"npu-{one}" for one in numbers), node=node, users=[f"{name}-0"])


def partition(number: int, *, amount: str = "10", **more: Any) -> Wire:
    """A partition of NPU 0, by the AI cores that it takes."""
    return device(f"npu-0-vnpu-{number}", {"type": "vnpu"}, **more, consumesCounters=takes(amount))


def takes(amount: str) -> list[Wire]:
    """What a device takes of the AI cores of NPU 0."""
    return [{"counterSet": "npu-0", "counters": {"ai-cores": {"value": amount}}}]


def shared(left: str) -> Wire:
    """An NPU that claims may share by memory."""
    policy = {"default": left, "validRange": {"min": "1Gi", "step": "1Gi"}}
    made = npu(0, allowMultipleAllocations=True)
    made["capacity"]["memCapacity"]["requestPolicy"] = policy
    return made


def _with_npus(name: str, count: int, **spec: Any) -> Wire:
    """A pod that asks for NPUs as an extended resource."""
    limits = {"limits": {"huawei.com/Ascend910": str(count)}}
    main = {"name": "main", "image": "none.invalid/none", "resources": limits}
    return pod(name, containers=[main], **spec)


_N1 = node("n1")
_TWO = slice_("s1", npu(0), npu(1))
_WANTS_TWO = claim("train", ask(count=2))
CUT = slice_(
    "s0",
    count=2,
    sharedCounters=[{"name": "npu-0", "counters": {"ai-cores": {"value": "20"}}}],
)
_SHARE = {
    "request": "npu",
    "driver": DRIVER,
    "pool": "n1",
    "device": "npu-0",
    "shareID": "00000000-0000-4000-8000-000000000001",
    "consumedCapacity": {"memCapacity": "24Gi"},
}

REASONS: tuple[Reason, ...] = (
    # Devices are missing, or held.
    Reason(title="nothing is published", objects=(_N1, TRAIN)),
    Reason(
        title="other devices only",
        objects=(_N1, slice_("s1", device("x"), driver="nic.example.com"), TRAIN),
    ),
    Reason(title="too little memory", objects=(_N1, _TWO, claim("train", ask(MEMORY)))),
    Reason(title="all are held", objects=(_N1, _TWO, held(0, 1), TRAIN)),
    Reason(
        title="unhealthy",
        objects=(_N1, slice_("s1", npu(0, taints=[SEPARATED])), TRAIN),
        since="1.36",
    ),
    Reason(
        title="out of service",
        objects=(_N1, slice_("s1", npu(0)), taint_rule(DRAINED, driver=DRIVER, pool="n1"), TRAIN),
        since="1.37",
    ),
    Reason(
        title="one on each of two nodes",
        objects=(
            _N1,
            node("n2"),
            slice_("s1", npu(0)),
            slice_("s2", npu(0), node="n2"),
            _WANTS_TWO,
        ),
    ),
    Reason(
        title="no ring has two left",
        objects=(
            _N1,
            slice_("s1", npu(0), npu(1), npu(2, ring=1), npu(3, ring=1)),
            held(0, 2),
            claim("train", ask(count=2), constraints=[RING]),
        ),
    ),
    Reason(
        title="two of different models wanted",
        objects=(
            _N1,
            _TWO,
            claim("train", ask(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/model"}]),
        ),
        since="1.36",
    ),
    # A part of an NPU is left.
    Reason(
        title="a partition is taken of the NPU",
        objects=(
            _N1,
            CUT,
            slice_("s1", npu(0, consumesCounters=takes("20")), partition(1), count=2),
            allocated(claim("infer", ask()), "npu-0-vnpu-1", users=["infer-0"]),
            claim("train", ask(f'device.attributes["{DRIVER}"].type == "npu"')),
        ),
        since="1.36",
    ),
    Reason(
        title="too small a share left",
        objects=(
            _N1,
            slice_("s1", shared("16Gi")),
            with_results(claim("infer", ask()), [_SHARE], users=["infer-0"]),
            claim("train", ask(capacity={"requests": {"memCapacity": "16Gi"}})),
        ),
        since="1.36",
    ),
    # The claim cannot be served by anything, or cannot be judged.
    Reason(title="no such claim", objects=(_N1, _TWO)),
    Reason(
        title="no claim made of the template",
        objects=(_N1, _TWO),
        pod=pod(
            "train",
            resourceClaims=[{"name": "npu", "resourceClaimTemplateName": "one-npu"}],
        ),
    ),
    Reason(
        title="no such class",
        objects=(_N1, _TWO, claim("train", ask(class_name="npu.example.com"))),
    ),
    Reason(
        title="the selector fails",
        objects=(_N1, _TWO, claim("train", ask(f'device.attributes["{DRIVER}"].numaNode == 0'))),
        outcome=Outcome.FAILS,
    ),
    Reason(
        title="a CEL function that this program does not implement",
        objects=(_N1, _TWO, claim("train", ask('device.driver.split(".").size() > 9'))),
        outcome=Outcome.UNDECIDED,
    ),
    # Nodes do not take the pod.
    Reason(
        title="the pod's nodeSelector",
        objects=(_N1, _TWO, TRAIN),
        pod=pod("train", "train", nodeSelector={"disk": "ssd"}),
    ),
    Reason(
        title="the node is cordoned",
        objects=(node("n1", unschedulable=True), _TWO, TRAIN),
    ),
    Reason(
        title="too little CPU",
        objects=(node("n1", allocatable={"cpu": "4"}), _TWO, TRAIN),
        pod=pod(
            "train",
            "train",
            containers=[
                {
                    "name": "main",
                    "image": "none.invalid/none",
                    "resources": {"requests": {"cpu": "8"}},
                }
            ],
        ),
    ),
    # All of a pool, and incomplete pools.
    Reason(
        title="half of the slices are published",
        objects=(_N1, slice_("s1", npu(0), npu(1), count=2), TRAIN),
        since="1.36",
    ),
    Reason(
        title="all are wanted and one is held",
        objects=(_N1, _TWO, held(0), claim("train", ask(allocationMode="All"))),
    ),
    # The pod itself, and resources that it asks for without a claim.
    Reason(
        title="a scheduling gate",
        objects=(_N1, _TWO, TRAIN),
        pod=pod("train", "train", schedulingGates=[{"name": "example.com/quota"}]),
    ),
    Reason(
        title="the device plugin's are in use",
        objects=(
            node("n1", allocatable={"huawei.com/Ascend910": "2"}),
            _with_npus("infer", 1, nodeName="n1", status={"phase": "Running"}),
        ),
        pod=_with_npus("train", 2),
    ),
    Reason(
        title="a resource of a DeviceClass",
        objects=(
            _N1,
            slice_("s1", npu(0)),
            class_(DRIVER, extendedResourceName="huawei.com/Ascend910"),
        ),
        pod=_with_npus("train", 2),
        since="1.36",
    ),
    # Several claims, requests or nodes.
    Reason(
        title="the claim has a device of another node",
        objects=(_N1, node("n2", labels={"disk": "ssd"}), _TWO, held(0, name="train")),
        pod=pod("train", "train", nodeSelector={"disk": "ssd"}),
    ),
    Reason(
        title="none of the choices",
        objects=(
            _N1,
            _TWO,
            held(1),
            claim(
                "train",
                {
                    "name": "npu",
                    "firstAvailable": [
                        {"name": "large", **ask(MEMORY)},
                        {"name": "two", **ask(count=2)},
                    ],
                },
            ),
        ),
    ),
    Reason(
        title="two claims for one NPU",
        objects=(_N1, slice_("s1", npu(0)), TRAIN, claim("more", ask())),
        pod=pod("train", "train", "more"),
    ),
)
