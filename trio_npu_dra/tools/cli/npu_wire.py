"""What `kubectl npu -o json` prints; docs/reference/kubectl-npu.md lists the fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import DeviceTaint, KubeObject
from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.tools.cluster.explain.answer import ClaimReport, Explanation, GivenDevice
from trio_npu_dra.tools.cluster.explain.funnel import Funnel, FunnelStep
from trio_npu_dra.tools.cluster.explain.job import JobExplanation
from trio_npu_dra.tools.cluster.fleet import DeviceRow, Diagnosis, NodeRow
from trio_npu_dra.tools.cluster.inventory import Allotment, DeviceId
from trio_npu_dra.tools.cluster.objects import Claim
from trio_npu_dra.tools.cluster.said import Action, Code, Said, Step

API_VERSION: Final = "cli.npu.huawei.com/v1"
_KEYS: Final[Mapping[type[Code], str]] = {Action: "action", Step: "step"}
"""The fields of codes that are no reasons."""
Wire = dict[str, Any]


def _answer(kind: str, **fields: Any) -> Wire:
    return {"apiVersion": API_VERSION, "kind": kind, **fields}


def fleet_wire(nodes: Sequence[NodeRow], doubts: Sequence[Said]) -> Wire:
    """The cluster's devices by node."""
    return _answer("Fleet", nodes=[_node(node) for node in nodes], notWeighed=_plain(doubts))


def _node(node: NodeRow) -> Wire:
    return {
        "name": node.node,
        "total": len(node.whole),
        "free": node.free,
        "used": node.used,
        "unhealthy": node.unhealthy,
        "rings": [
            {"name": ring.name, "size": ring.size, "free": ring.free, "whole": ring.is_whole}
            for ring in node.rings
        ],
        "flaws": _plain(node.flaws),
        "devices": [_row(row) for row in node.devices],
    }


def _row(row: DeviceRow) -> Wire:
    numa = row.device.attributes.get(fact_names.NUMA_NODE)
    memory = _told(row.memory)
    return {
        **_device(row.id),
        "model": _told(row.model),
        "memoryBytes": None if memory is None else _plain(parse_quantity(memory)),
        "ring": _told(row.attribute(fact_names.TOPOLOGY_GROUP)),
        "numaNode": None if numa is None else numa.int_,
        "addresses": list(row.addresses),
        "published": row.is_published,
        "state": row.state.capitalize(),
        "unhealthy": row.is_unhealthy,
        "taints": _plain(row.device.taints),
        "heldBy": [
            {
                **_plain(one),
                "device": one.result.device,
                "request": one.result.request,
                "adminAccess": bool(one.result.admin_access),
            }
            for one in row.holders
        ],
    }


def _told(word: str) -> str | None:
    return None if word == "-" else word


def _device(device: DeviceId) -> Wire:
    return {"name": device.name, "pool": device.pool, "driver": device.driver}


def explanation_wire(explanation: Explanation, about: KubeObject) -> Wire:
    """An explanation of a pod or a claim."""
    return _answer(
        "Explanation",
        subject={
            "kind": about.kind_name,
            "namespace": about.metadata.namespace,
            "name": about.metadata.name,
        },
        **_explained(explanation),
        notWeighed=_plain(explanation.doubts),
        events=_events(explanation.events),
    )


def _explained(explanation: Explanation) -> Wire:
    return {
        "outcome": str(explanation.outcome),
        "why": _plain(explanation.sentence),
        "message": str(explanation.sentence),
        "claims": [_claim(report) for report in explanation.claims],
        "nodes": [{"name": name, "why": _plain(why)} for name, why in explanation.nodes],
        "helps": _plain(explanation.helps),
    }


def job_wire(job: JobExplanation, subject: Wire) -> Wire:
    """Whether a job fits into one super pod."""
    return _answer(
        "JobExplanation",
        subject=subject,
        outcome=str(job.outcome),
        why=_plain(job.sentence),
        message=str(job.sentence),
        superPods=[
            {
                "id": one.id,
                "placed": one.placed,
                "fits": one.fits,
                "nodes": [
                    {"name": node.node, "total": len(node.whole), "free": node.free}
                    for node in one.nodes
                ],
            }
            for one in job.super_pods
        ],
        blocked=None if job.blocked is None else _explained(job.blocked),
        notWeighed=_plain(job.doubts),
    )


def _claim(report: ClaimReport) -> Wire:
    return {
        "name": report.claim.title,
        "allocated": report.claim.status.allocation is not None,
        **_users(report.claim),
        "devices": [_given(one) for one in report.given],
        "requests": [_funnel(one) for one in report.funnels],
    }


def _users(claim: Claim) -> Wire:
    status = claim.status
    return {"pods": list(status.users("pods")), "podGroups": list(status.users("podgroups"))}


def _given(one: GivenDevice) -> Wire:
    return {
        **_device(one.id),
        "request": one.result.request,
        "attributes": _plain(one.attributes),
        "capacity": _amounts(
            {name: found.value for name, found in one.device.capacity.items()} if one.device else {}
        ),
        "adminAccess": bool(one.result.admin_access),
        "share": _amounts(one.result.consumed_capacity) if one.result.share_id else None,
        "published": one.device is not None,
        "taints": _plain(one.device.taints if one.device else ()),
    }


def _amounts(quantities: Mapping[str, str]) -> Wire:
    return {name: _plain(parse_quantity(value)) for name, value in quantities.items()}


def _funnel(one: Funnel) -> Wire:
    return {
        "name": one.wanted.title,
        "deviceClass": one.wanted.class_name,
        "count": one.wanted.count,
        "firstTooFew": one.short,
        "steps": [_step(step) for step in one.steps],
    }


def _step(step: FunnelStep) -> Wire:
    return {
        **_plain(step.words),
        "left": step.left,
        "mostOnOneNode": step.most,
        "undecided": bool(step.undecided),
        "losses": [
            {**_plain(loss.why), "devices": [_device(device) for device in loss.devices]}
            for loss in step.losses
        ],
    }


def diagnosis_wire(unhealthy: Diagnosis) -> Wire:
    """What is wrong with a device."""
    return _answer(
        "Diagnosis",
        node=unhealthy.node,
        device=_row(unhealthy.row),
        notWeighed=_plain(unhealthy.doubts),
        events=_events(unhealthy.events),
    )


def _events(events: Iterable[Event]) -> list[Wire]:
    return [
        {
            "time": event.when or None,
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "count": event.count or 1,
        }
        for event in events
    ]


def _plain(value: Any) -> Any:
    """Messages as codes and facts, and these in the types of JSON."""
    found = value
    match value:
        case Said():
            key = _KEYS.get(type(value.code), "reason")
            found = {key: str(value.code), **_plain(value.facts)}
        case Fraction():
            found = int(value) if value.denominator == 1 else float(value)
        case DeviceTaint():
            found = {
                "key": value.key,
                "value": value.value,
                "effect": value.effect,
                "since": value.time_added,
            }
        case Allotment():
            found = {"claim": value.claim.title, **_users(value.claim)}
        case Mapping():
            found = {name: _plain(one) for name, one in value.items()}
        case list() | tuple():
            found = [_plain(one) for one in value]
    return found
