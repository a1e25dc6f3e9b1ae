"""The annotation of which MindCluster makes rank tables, and by which it knows a pod's chips."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from trio_npu_dra.agent.mindcluster.node_facts import device_ip, place
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.ascend.traits import TRAITS

CONFIGURATION: Final = "ascend.kubectl.kubernetes.io/ascend-910-configuration"

_NO_ADDRESS: Final = "-1"  # ascend-operator makes no rank table that would need the address


def is_configured(chips: Sequence[Chip]) -> bool:
    """Whether pods with these chips get it: chips with addresses, and not with a 950's levels."""
    traits = [TRAITS[chip.family] for chip in chips]
    return all(one.has_network_port and not one.uses_unified_bus for one in traits)


def pod_configuration(pod: str, uid: str, host_ip: str, chips: Sequence[Chip]) -> str:
    """The annotation's value for a pod with these chips of one node, by physical id (pure)."""
    super_pod_id, server_index = place(chips)
    value: dict[str, Any] = {
        "pod_name": pod,
        "server_id": uid,
        "host_ip": host_ip,
        "super_pod_id": super_pod_id,
        "devices": [_device(chip) for chip in chips],
        "server_index": str(server_index),
        "server_ip": host_ip,
    }
    return json.dumps(value, separators=(",", ":"))


def _device(chip: Chip) -> dict[str, str]:
    sdid = chip.super_pod_sdid
    return {
        "device_id": str(chip.physical_id),
        "device_ip": device_ip(chip) or _NO_ADDRESS,
        **({} if sdid is None else {"super_device_id": str(sdid)}),
    }
