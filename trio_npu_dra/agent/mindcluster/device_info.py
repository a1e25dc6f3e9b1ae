"""The ConfigMap of the node's devices: which are free, which are unhealthy, and why; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from trio_npu_dra.agent.device_plugin.names import USUAL, device_id
from trio_npu_dra.agent.mindcluster.node_facts import place, usual_chips
from trio_npu_dra.ascend.model import Chip, FaultLevel
from trio_npu_dra.ascend.port_faults import ROCE_LINK_DOWN, UB_DOWN_ON_ALL, UB_DOWN_ON_ONE
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.api.applied import ConfigMap
from trio_npu_dra.kit.api.objects import ObjectMeta
from trio_npu_dra.kit.base.health import HealthState

NAMESPACE: Final = "kube-system"
NAME_PREFIX: Final = "mindx-dl-deviceinfo-"
CONSUMER: Final = "mx-consumer-cim"
"""The label by which ClusterD finds it."""


def content(resources: Mapping[str, Sequence[Chip]], used: Collection[str]) -> dict[str, Any]:
    """What the ConfigMap says, without the time: while it is equal nothing need be written.

    Chips in another resource than the usual one of their family are not Volcano's. *used* has the
    host device nodes of chips that pods have.
    """
    chips = usual_chips(resources)
    super_pod_id, server_index = place(chips)
    return {
        "DeviceList": device_list(resources, used),
        "SuperPodID": super_pod_id,
        "ServerIndex": server_index,
        "ManuallySeparateNPU": ",".join(
            _id(chip) for chip in chips if chip.health.level is FaultLevel.MANUALLY_SEPARATE_NPU
        ),
    }


def config_map(told: Mapping[str, Any], *, node_name: str, updated_at: int) -> ConfigMap:
    """The ConfigMap with that `content`.

    *updated_at* is in whole seconds since 1970; Volcano reads the ConfigMap only if it has grown.
    """
    info = {"DeviceList": told["DeviceList"], "UpdateTime": updated_at}
    whole = {
        "DeviceInfo": info,
        "SuperPodID": told["SuperPodID"],
        "ServerIndex": told["ServerIndex"],
        "CheckCode": check_code(info),
    }
    return ConfigMap(
        metadata=ObjectMeta(
            name=f"{NAME_PREFIX}{node_name}", namespace=NAMESPACE, labels={CONSUMER: "true"}
        ),
        data={
            "DeviceInfoCfg": _go_json(whole),
            "ManuallySeparateNPU": told["ManuallySeparateNPU"],
        },
    )


def device_list(resources: Mapping[str, Sequence[Chip]], used: Collection[str]) -> dict[str, str]:
    """Lists of devices by state, and of faults as JSON, of each resource."""
    found: dict[str, str] = {}
    for resource in sorted(resources.keys() & USUAL.values()):
        chips = usual_chips({resource: resources[resource]})
        lists = {
            "": [
                chip
                for chip in chips
                if chip.health.state is HealthState.HEALTHY and chip.device_node not in used
            ],
            "-Unhealthy": [chip for chip in chips if _is_unhealthy(chip, used)],
        }
        if any(TRAITS[chip.family].has_network_port for chip in chips):
            lists["-NetworkUnhealthy"] = [chip for chip in chips if chip.health.network]
            lists["-Recovering"] = [
                chip for chip in chips if chip.health.state is HealthState.UNKNOWN
            ]
        found |= {f"{resource}{key}": ",".join(map(_id, some)) for key, some in lists.items()}
        faults = [fault for chip in chips for fault in _faults(chip)]
        found[f"{resource}-Fault"] = _go_json(faults)
    return found


def check_code(info: Mapping[str, Any]) -> str:
    """The sum that ClusterD compares: SHA-256 of `DeviceInfo` as Go writes it in JSON.

    ClusterD reads `DeviceInfo`, writes it again and accepts no other sum. Its members are in the
    order of Go's struct, those of `DeviceList` are sorted.
    """
    text = _go_json(
        {"DeviceList": dict(sorted(info["DeviceList"].items())), "UpdateTime": info["UpdateTime"]}
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _go_json(value: Any) -> str:
    """JSON as Go's encoding/json writes it: without spaces, and safe in HTML."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _id(chip: Chip) -> str:
    return device_id(USUAL[chip.family], chip.physical_id)


def _is_unhealthy(chip: Chip, used: Collection[str]) -> bool:
    """At PreSeparateNPU a chip counts as healthy for the pod that has it."""
    is_kept = chip.health.level is FaultLevel.PRE_SEPARATE_NPU and chip.device_node in used
    return chip.health.level.is_unhealthy and not is_kept


def _faults(chip: Chip) -> list[dict[str, Any]]:
    found = []
    if chip.health.network:
        # The one code that MindCluster has for trouble of the network.
        codes = {_code(ROCE_LINK_DOWN): {"fault_time": 0, "fault_level": FaultLevel.NOT_HANDLE}}
        found.append(_fault(chip, "CardNetworkUnhealthy", FaultLevel.NOT_HANDLE, codes))
    if chip.health.faults:
        codes = {
            _code(fault.code): {
                "fault_time": int(fault.since * 1000),
                "fault_level": fault.level,
            }
            for fault in reversed(chip.health.faults)  # of one code twice, the worst one counts
        }
        found.append(_fault(chip, "CardUnhealthy", chip.health.level, codes))
    return found


def _code(code: int) -> str:
    """A code as MindCluster writes it: codes that follow from others have nine digits."""
    return f"{code:09X}" if code in {UB_DOWN_ON_ONE, UB_DOWN_ON_ALL} else f"{code:X}"


def _fault(chip: Chip, kind: str, level: FaultLevel, codes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "fault_type": kind,
        "npu_name": _id(chip),
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": ",".join(reversed(list(codes))),
        "fault_time_and_level_map": dict(sorted(codes.items())),
    }
