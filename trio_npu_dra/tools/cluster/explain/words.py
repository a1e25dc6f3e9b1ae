"""Sentences about requests and devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.tools.cluster.explain.funnel import Funnel, FunnelStep, Loss
from trio_npu_dra.tools.cluster.explain.wanted import Wanted
from trio_npu_dra.tools.cluster.inventory import DeviceId
from trio_npu_dra.tools.cluster.said import Code, Lost, Said, Step, Why, few

_LOSSES = 3
_SHORT: dict[Code, Why] = {
    Step.PUBLISHED: Why.FEW_PUBLISHED,
    Step.CLASS: Why.FEW_OF_CLASS,
    Step.NODES: Why.FEW_ON_NODES,
    Step.SELECTOR: Why.FEW_SELECTED,
    Step.CAPACITY: Why.FEW_LARGE,
    Step.TAINTS: Why.FEW_HEALTHY,
    Step.FREE: Why.FEW_FREE,
    Step.LEFT: Why.FEW_FREE,
}
"""What a request lacks, by the step that leaves too few devices."""


def ask_words(wanted: Wanted) -> str:
    """`2 devices of class npu.huawei.com`."""
    if wanted.count is None:
        return f"all matching devices of class {wanted.class_name} on a node"
    return f"{counted(wanted.count, 'device')} of class {wanted.class_name}"


def counted(count: int, noun: str) -> str:
    """`1 device`, `2 devices`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def event_words(event: Event) -> str:
    """`Warning FailedScheduling: 0/3 nodes are available`."""
    return " ".join(filter(None, (event.type, f"{event.reason}:", event.message)))


def names_of(devices: Iterable[DeviceId]) -> str:
    """`npu-0, npu-1 of n1; npu-3 of n2`, with a limit."""
    pools: dict[str, list[str]] = {}
    for device in devices:
        pools.setdefault(device.pool, []).append(device.name)
    return "; ".join(f"{few(names)} of {pool}" for pool, names in _some(pools.items()))


def _some(pools: Iterable[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    listed = list(pools)
    if len(listed) <= _LOSSES:
        return listed
    rest = sum(len(names) for _, names in listed[_LOSSES:])
    return [*listed[:_LOSSES], (counted(len(listed) - _LOSSES, "more pool"), [f"{rest} more"])]


def loss_words(losses: Sequence[Loss], *, more: bool = False) -> str:
    """`8 are held by claim default/a; 6 have memCapacity 32Gi`, or `6 more have ...`."""
    also = " more" if more else ""
    parts = [
        f"{len(loss.devices)}{also} {_agreeing(loss)}" if loss.devices else loss.why
        for loss in losses[:_LOSSES]
    ]
    rest = losses[_LOSSES:]
    if rest:
        count = sum(len(loss.devices) for loss in rest)
        is_held = all(loss.why.code is Lost.HELD for loss in rest)
        others = counted(len(rest), "other claim" if is_held else "other reason")
        parts.append(f"{count} {'by' if is_held else 'for'} {others}")
    return "; ".join(parts)


def _agreeing(loss: Loss) -> str:
    """The reason with a verb that agrees with the number of devices."""
    if len(loss.devices) != 1:
        return loss.why
    verb, _, rest = loss.why.partition(" ")
    singular = {"have": "has", "are": "is", "do": "does", "need": "needs", "make": "makes"}
    return f"{singular.get(verb, verb)} {rest}"


def short_said(claim: str, funnel: Funnel) -> Said:
    """Why one request cannot have what it wants: the first step that leaves too few."""
    at = funnel.short
    assert at is not None
    step, wanted = funnel.steps[at], funnel.wanted
    return Said(
        _short_words(claim, funnel, at),
        _SHORT[step.words.code],
        claim=claim,
        request=wanted.title,
        wanted=wanted.count,
        left=step.left,
        mostOnOneNode=step.most,
    )


def _short_words(claim: str, funnel: Funnel, at: int) -> str:
    step, wanted = funnel.steps[at], funnel.wanted
    asked = f"request {wanted.title} of claim {claim} wants {ask_words(wanted)}"
    if at == 0 and not step.left:
        why = f" that can be used: {loss_words(step.losses)}" if step.losses else ""
        return f"{asked}, and no device is published{why}"
    notes = [loss_words(step.losses)] if step.losses else []
    near = [loss for one in funnel.steps[1:at] for loss in one.losses if _is_near_miss(one)]
    if near:
        notes.append(loss_words(near, more=True))
    if at:
        before = funnel.steps[at - 1]
        notes = [f"{before.left} {before.counting}" + ": " * bool(notes) + "; ".join(notes)]
    return f"{asked}; {_left(step, wanted)}" + (f" ({notes[0]})" if notes else "")


def _left(step: FunnelStep, wanted: Wanted) -> str:
    """`none is free`, `only 2 are free`, or that they are spread over nodes."""
    if not step.left:
        return f"none {step.counting}"
    if wanted.count is not None and step.left >= wanted.count:
        return f"{step.left} {step.counting}, but at most {step.most} on one node"
    return f"only {step.left} {step.counting}"


def _is_near_miss(step: FunnelStep) -> bool:
    """Whether what the step takes away had the right class, and was on a node for the pod."""
    return step.words.code not in {Step.CLASS, Step.NODES}


def no_node_said(barred: Mapping[str, Said]) -> Said:
    """That no node takes the pod, given why each does not."""
    if not barred:
        return Said("there is no node", Why.NO_NODE)
    why = [f"{node} {reason}" for node, reason in barred.items()]
    more = f"; and {counted(len(why) - 3, 'more node')}" if len(why) > 3 else ""
    text = "no node takes the pod: " + "; ".join(why[:3]) + more
    return Said(text, Why.NO_NODE_TAKES_POD)
