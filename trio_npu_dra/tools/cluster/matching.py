"""Whether labels, taints and tolerations fit, by the rules of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.kit.api.objects import DeviceTaint
from trio_npu_dra.tools.cluster.pods import NodeSelector, Requirement, SelectorTerm, Toleration

BLOCKING = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods away."""


def selects(selector: NodeSelector, node: FullNode) -> bool:
    """Whether one of the terms holds for a node; a term without lines holds for none."""
    return any(_holds(term, node) for term in selector.node_selector_terms)


def _holds(term: SelectorTerm, node: FullNode) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels
    fields = {"metadata.name": node.metadata.name}
    return all(requirement_holds(line, labels) for line in term.match_expressions) and all(
        requirement_holds(line, fields) for line in term.match_fields
    )


def requirement_holds(line: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether one line holds; an operator that is not known holds for nothing."""
    value = labels.get(line.key)
    match line.operator:
        case "In":
            return value in line.values
        case "NotIn":
            return value not in line.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(line, value)
        case _:
            return False


def _compares(line: Requirement, value: str | None) -> bool:
    try:
        number, bound = int(value or ""), int(line.values[0] if line.values else "")
    except ValueError:
        return False
    return number > bound if line.operator == "Gt" else number < bound


def tolerated(taint: DeviceTaint, tolerations: Iterable[Toleration]) -> bool:
    """Whether one of the tolerations is for the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == (taint.value or "")


def taint_words(taint: DeviceTaint) -> str:
    """A taint as kubectl has it: `npu.huawei.com/fault=SeparateNPU:NoExecute`."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else (
        f"{taint.key}:{taint.effect}"
    )  # fmt: skip
