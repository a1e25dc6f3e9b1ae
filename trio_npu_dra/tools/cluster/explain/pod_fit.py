"""Why a node does not take a pod, apart from devices: labels, taints, and resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.kit.api.objects import DeviceTaint
from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.tools.cluster.objects import (
    BLOCKING,
    Container,
    Pod,
    selects,
    taint_words,
    tolerated,
)
from trio_npu_dra.tools.cluster.pools import quantity_words
from trio_npu_dra.tools.cluster.said import Doubt, Obstacle, Said

_CORDONED = DeviceTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
Amounts = dict[str, Fraction]


def requested(pod: Pod) -> Amounts:
    """What a pod asks a node for: its containers together, or an init container if it needs more.

    Init containers that run on (sidecars) count for all that start after them. Of cpu and memory
    a pod may say itself what all of it needs.
    """
    spec = pod.spec
    beside: Amounts = {}
    starts: list[Amounts] = []
    for one in spec.init_containers:
        starts.append(_sum((beside, _of(one))))
        if one.restart_policy == "Always":
            beside = starts[-1]
    total = _sum((beside, *map(_of, spec.containers)))
    for start in starts:
        for name, amount in start.items():
            total[name] = max(total.get(name, Fraction(0)), amount)
    whole = {**spec.resources.limits, **spec.resources.requests}
    return _sum(({**total, **_parsed(whole)}, _parsed(spec.overhead)))


def _of(container: Container) -> Amounts:
    """Its requests; a limit without a request is one."""
    return _parsed({**container.resources.limits, **container.resources.requests})


def _parsed(amounts: Mapping[str, str]) -> Amounts:
    return {name: parse_quantity(amount) for name, amount in amounts.items()}


def _sum(parts: Iterable[Mapping[str, Fraction]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


class Usage:
    """What the pods of each node have requested; None for unknown pods."""

    def __init__(self, pods: Iterable[Pod] | None) -> None:
        self.is_known = pods is not None
        self._used: dict[str, Amounts] = {}
        for pod in pods or ():
            if pod.spec.node_name and not pod.status.has_ended:
                used = self._used.get(pod.spec.node_name, {})
                one = {"pods": Fraction(1), **requested(pod)}
                self._used[pod.spec.node_name] = _sum((used, one))

    def of(self, node: str, resource: str) -> Fraction:
        """What is requested of a resource on a node."""
        return self._used.get(node, {}).get(resource, Fraction(0))


def obstacles(
    pod: Pod, node: FullNode, usage: Usage, from_devices: frozenset[str]
) -> Iterator[Said]:
    """What keeps the pod from a node, said of the node.

    *from_devices* are the resources that the node gives through DeviceClasses.
    """
    spec = pod.spec
    if node.spec.unschedulable and not tolerated(_CORDONED, spec.tolerations):
        yield Said("is cordoned", Obstacle.CORDONED)
    for taint in node.spec.taints:
        is_said = node.spec.unschedulable and taint.key == _CORDONED.key
        if taint.effect in BLOCKING and not is_said and not tolerated(taint, spec.tolerations):
            text = f"has the taint {taint_words(taint)}, which the pod does not tolerate"
            yield Said(text, Obstacle.NODE_TAINTED, taint=taint)
    labels = node.metadata.labels
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            text = f"is not {key}={value}, as the pod's nodeSelector wants"
            yield Said(text, Obstacle.NODE_SELECTOR, label=key, value=value)
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity and affinity.required and not selects(affinity.required, node):
        yield Said("is not what the pod's node affinity wants", Obstacle.NODE_AFFINITY)
    if usage.is_known:
        yield from _lacking(pod, node, usage, from_devices)


def _lacking(
    pod: Pod, node: FullNode, usage: Usage, from_devices: frozenset[str]
) -> Iterator[Said]:
    wanted = {"pods": Fraction(1), **requested(pod)}
    for name, amount in wanted.items():
        if name in from_devices or not amount:
            continue
        if name not in node.status.allocatable:
            if name != "pods":
                yield Said(f"has no {name}", Obstacle.RESOURCE_MISSING, resource=name)
            continue
        has = parse_quantity(node.status.allocatable[name])
        used = usage.of(node.metadata.name, name)
        left = max(has - used, Fraction(0))
        if amount > left:
            yield Said(
                f"has {quantity_words(left)} of {quantity_words(has)} {name} left, "
                f"and the pod wants {quantity_words(amount)}",
                Obstacle.RESOURCE_SMALL,
                resource=name,
                left=left,
                total=has,
                wanted=amount,
            )


def not_weighed(pod: Pod) -> Iterator[Said]:
    """What the scheduler weighs for this pod, and this package does not."""
    affinity = pod.spec.affinity
    if affinity and (affinity.pod_affinity or affinity.pod_anti_affinity):
        yield Said("the pod's affinity to other pods", Doubt.POD_AFFINITY)
    if pod.spec.topology_spread_constraints:
        yield Said("its topology spread constraints", Doubt.TOPOLOGY_SPREAD)
    if pod.spec.scheduler_name != "default-scheduler":
        name = pod.spec.scheduler_name
        text = f"what its scheduler {name} does differently"
        yield Said(text, Doubt.OTHER_SCHEDULER, scheduler=name)
