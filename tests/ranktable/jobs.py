"""Jobs as API objects: pods, their claims, and what the driver says in these of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.api.pods import PlacedPod
from trio_npu_dra.tools.ranktable.members import Gathered, gather, live

Wire = dict[str, Any]

LWS = "leaderworkerset.sigs.k8s.io"
A2, A3, A5 = ChipFamily.ASCEND_910B, ChipFamily.ASCEND_910_A3, ChipFamily.ASCEND_950


def npu(number: int, family: ChipFamily = A2, *, ips: Sequence[str] = (), **facts: Any) -> Wire:
    """An entry of status.devices: a whole NPU; *facts* are those of its data."""
    data = {
        "apiVersion": "npu.huawei.com/v1alpha1",
        "kind": "NpuStatus",
        "type": "npu",
        "model": family.value,
        "chipName": "910B4",
        "physicalId": number,
    }
    network = {"networkData": {"ips": [*ips]}} if ips else {}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Healthy",
        "lastTransitionTime": "2026-11-26T12:00:00Z",
    }
    return {
        "driver": "npu.huawei.com",
        "device": f"npu-{number}",
        "conditions": [ready],
        "data": data | facts,
        **network,
    }


def module(first: int, *, super_pod: int, sdid: int, ips: Sequence[str] = ()) -> Wire:
    """An A3 card as one device: both dies; *sdid* is that of the node's first one."""
    dies = [
        {"physicalId": first + die, "sdid": sdid + first + die}
        | ({"networkData": {"ips": [ips[die]]}} if ips else {})
        for die in (0, 1)
    ]
    facts: Wire = {"type": "module", "superPodId": super_pod, "sdid": dies[0]["sdid"]}
    return npu(first, A3, moduleDies=dies, **facts) | {"device": f"module-{first}"}


def levels(instance: str, *addresses: str) -> list[Wire]:
    """level_list of a 950 with one level."""
    found = [{"addr_type": "EID", "addr": one, "ports": ["0/4"]} for one in addresses]
    return [
        {
            "net_layer": 0,
            "net_instance_id": instance,
            "net_type": "TOPO_FILE_DESC",
            "net_attr": "",
            "rank_addr_list": found,
        }
    ]


def pod(
    name: str,
    node: str | None,
    *,
    index: int | None = None,
    labels: Mapping[str, str] = MappingProxyType({"job": "train"}),
    host: str = "",
) -> PlacedPod:
    """A pod that runs, with a claim `npus` of a template; without a node it does not run yet.

    Without an address of its own the node has one by the number in its name.
    """
    number = "".join(filter(str.isdigit, node or "")) or "1"
    addresses = {"podIP": f"10.0.0.{7 + (index or 0)}", "hostIP": host or f"172.16.0.{number}"}
    where = addresses if node else {}
    if index is not None:
        labels = {"batch.kubernetes.io/job-completion-index": str(index), **labels}
    wire: Wire = {
        "metadata": {
            "name": name,
            "namespace": "train",
            "uid": f"uid-{name}",
            "labels": dict(labels),
        },
        "spec": {
            "nodeName": node,
            "resourceClaims": [{"name": "npus", "resourceClaimTemplateName": "npus"}],
        },
        "status": {
            "phase": "Running" if node else "Pending",
            **where,
            "resourceClaimStatuses": [{"name": "npus", "resourceClaimName": f"{name}-npus"}],
        },
    }
    return PlacedPod.model_validate(wire)


def claim(of: PlacedPod, *devices: Wire) -> ResourceClaim:
    """Its claim, with these devices of its node."""
    entries = [{"pool": of.spec.node_name, **device} for device in devices]
    keys = ("driver", "pool", "device", "shareID", "adminAccess")
    results = [
        {"request": "npus"} | {key: entry[key] for key in keys if key in entry} for entry in entries
    ]
    wire: Wire = {
        "metadata": {"name": f"{of.metadata.name}-npus", "namespace": "train"},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": of.metadata.name, "uid": of.metadata.uid}],
            "devices": [entry for entry in entries if "data" in entry],
        },
    }
    return ResourceClaim.model_validate(wire)


Job = Sequence[tuple[PlacedPod, Sequence[Wire]]]


def gathered(job: Job, count: int | None = None) -> Gathered:
    """The members of a job whose pods have these devices."""
    claims = [claim(of, *devices) for of, devices in job]
    by_name = {one.metadata.name: one for one in claims}
    return gather(live([of for of, _ in job]), by_name, count)


def super_pods(*of_nodes: int, ips: bool = True) -> Job:
    """A job on A3: a pod with two modules on each node, whose super pods these are."""
    return [
        (
            pod(f"train-{at}", f"n{at}", index=at),
            [
                module(
                    first,
                    super_pod=super_pod,
                    sdid=16 * at,
                    ips=[f"10.20.{at}.{first + die}/24" for die in (0, 1)] if ips else (),
                )
                for first in (0, 2)
            ],
        )
        for at, super_pod in enumerate(of_nodes)
    ]
