"""What `kubectl npu -o json` and `-o yaml` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.tools.cluster.diagnosis import Diagnosis
from trio_npu_dra.tools.cluster.explain.explanation import ClaimReport, Explanation
from trio_npu_dra.tools.cluster.explain.funnel import Funnel, FunnelStep
from trio_npu_dra.tools.cluster.fleet import DeviceRow, NodeRow
from trio_npu_dra.tools.cluster.inventory import Allotment, DeviceId

Wire = dict[str, Any]


def fleet_wire(nodes: Sequence[NodeRow], doubts: Sequence[str]) -> Wire:
    """The cluster's devices by node."""
    return {
        "nodes": [
            {
                "name": node.node,
                "total": len(node.whole),
                "free": node.free,
                "used": node.used,
                "unhealthy": node.unhealthy,
                "rings": [
                    {
                        "name": ring.name,
                        "size": ring.size,
                        "free": ring.free,
                        "whole": ring.is_whole,
                    }
                    for ring in node.rings
                ],
                "flaws": list(node.flaws),
                "devices": [_row(row) for row in node.devices],
            }
            for node in nodes
        ],
        "notWeighed": list(doubts),
    }


def _row(row: DeviceRow) -> Wire:
    numa = row.device.attributes.get(fact_names.NUMA_NODE)
    return {
        **_device(row.id),
        "model": _told(row.model),
        "memory": _told(row.memory),
        "ring": _told(row.attribute(fact_names.TOPOLOGY_GROUP)),
        "numaNode": None if numa is None else numa.int_,
        "published": row.is_published,
        "state": str(row.state),
        "unhealthy": row.is_unhealthy,
        "taints": list(row.taints),
        "heldBy": [_holding(one) for one in row.holders],
    }


def _told(word: str) -> str | None:
    return None if word == "-" else word


def _device(device: DeviceId) -> Wire:
    return {"name": device.name, "pool": device.pool, "driver": device.driver}


def _holding(one: Allotment) -> Wire:
    return {
        "claim": one.claim,
        "pods": list(one.pods),
        "device": one.result.device,
        "request": one.result.request,
        "adminAccess": bool(one.result.admin_access),
    }


def explanation_wire(explanation: Explanation) -> Wire:
    """An explanation."""
    return {
        "subject": explanation.subject,
        "outcome": str(explanation.outcome),
        "sentence": explanation.sentence,
        "claims": [_claim(report) for report in explanation.claims],
        "nodes": [{"name": name, "obstacle": why} for name, why in explanation.nodes],
        "helps": list(explanation.helps),
        "notWeighed": list(explanation.doubts),
        "events": list(explanation.events),
    }


def _claim(report: ClaimReport) -> Wire:
    return {
        "name": report.title,
        "state": report.state,
        "devices": [
            {
                **_device(one.device),
                "request": one.request,
                "facts": one.facts,
                "how": one.how,
                "now": one.now,
            }
            for one in report.given
        ],
        "requests": [_funnel(one) for one in report.funnels],
    }


def _funnel(one: Funnel) -> Wire:
    return {
        "name": one.wanted.title,
        "class": one.wanted.class_name,
        "count": one.wanted.count,
        "firstTooFew": one.short,
        "steps": [_step(step) for step in one.steps],
    }


def _step(step: FunnelStep) -> Wire:
    return {
        "left": step.left,
        "words": step.words,
        "mostOnOneNode": step.most,
        "losses": [
            {"reason": loss.why, "devices": [_device(device) for device in loss.devices]}
            for loss in step.losses
        ],
    }


def diagnosis_wire(unhealthy: Diagnosis) -> Wire:
    """What is wrong with a device."""
    return {
        "device": _row(unhealthy.row),
        "taints": list(unhealthy.taints),
        "events": list(unhealthy.events),
        "notWeighed": list(unhealthy.doubts),
    }
