"""Labels and annotations of the Node: which chips it has, and its super pod; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from trio_npu_dra.agent.device_plugin.names import USUAL, device_id
from trio_npu_dra.agent.report.node_labels import RACK, as_labels, topology_labels
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.ascend.traits import TRAITS

SERVER_TYPE: Final = "servertype"
"""A label that Huawei's device plugin leaves alone where it is set."""

ACCELERATOR_TYPE: Final = "accelerator-type"
"""A label that people set, such as `module-910b-8`; on two boards it follows from the chips."""

NO_PLACE: Final = -2
"""The value for an NPU that is in no super pod."""

_DUO: Final = "Atlas 300I Duo"


def usual_chips(resources: Mapping[str, Sequence[Chip]]) -> tuple[Chip, ...]:
    """The chips that Volcano may place pods on, by physical id: those in their usual resource."""
    return tuple(
        sorted(
            (
                chip
                for resource, chips in resources.items()
                for chip in chips
                if USUAL[chip.family] == resource
            ),
            key=lambda chip: chip.physical_id,
        )
    )


def node_labels(chips: Sequence[Chip]) -> dict[str, str]:
    """The labels by the node's first chip, as in MindCluster."""
    if not chips:
        return {}
    first, traits = chips[0], TRAITS[chips[0].family]
    found: dict[str, str | None] = {
        "accelerator": traits.accelerator,
        ACCELERATOR_TYPE: traits.accelerator_types.get(first.board_id),
        "node.kubernetes.io/npu.chip.name": first.chip_name,
        SERVER_TYPE: _server_type(first),
        "mind-cluster/npu-chip-memory": _memory(first),
    }
    if all(chip.product_name == _DUO for chip in chips):
        found["infer-card-type"] = "card-300i-duo"
    return topology_labels(chips) | as_labels(found)


def node_annotations(chips: Sequence[Chip]) -> dict[str, str]:
    """The annotations; `baseDeviceInfos` lists just the chips that pods may get."""
    if not chips:
        return {}
    devices = {device_id(USUAL[chip.family], chip.physical_id): _base(chip) for chip in chips}
    super_pod_id, server_index = place(chips)
    rack = topology_labels(chips).get(RACK)
    return {
        **({"rackID": rack} if rack else {}),
        "baseDeviceInfos": json.dumps(devices, separators=(",", ":")),
        "superPodID": str(super_pod_id),
        "serverIndex": str(server_index),
        "serverType": TRAITS[chips[0].family].server_type,
    }


def place(chips: Sequence[Chip]) -> tuple[int, int]:
    """The super pod and the index in it, by the first chip that tells both."""
    for chip in chips:
        if chip.super_pod_id is not None and chip.super_pod_server_index is not None:
            return chip.super_pod_id, chip.super_pod_server_index
    return NO_PLACE, NO_PLACE


def device_ip(chip: Chip) -> str:
    """The address of a chip's RoCE port; empty if it has none, or that is not known."""
    return str(chip.network.addresses[0].ip) if chip.network else ""


def _base(chip: Chip) -> dict[str, int | str]:
    """Facts of one chip."""
    by_logic_id = TRAITS[chip.family].is_named_by_logic_id
    return {
        **({"DeviceID": chip.logic_id} if by_logic_id else {}),
        "IP": device_ip(chip),
        "SuperDeviceID": chip.super_pod_sdid or 0,
    }


def _server_type(chip: Chip) -> str | None:
    if chip.ai_cores is None:
        return None
    return f"{TRAITS[chip.family].server_kind or chip.family}-{chip.ai_cores}"


def _memory(chip: Chip) -> str | None:
    if not TRAITS[chip.family].has_hbm or chip.memory_bytes is None:
        return None
    return f"{chip.memory_bytes >> 30}G"
