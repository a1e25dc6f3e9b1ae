"""What a claim's status says of one device of this driver: `status.devices[].data`.

The daemon writes it, and tools make rank tables of it. What is unknown is absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from trio_npu_dra.agent.config.model import API_VERSION
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.offers import Offer, OfferKind
from trio_npu_dra.kit.api.objects import ApiModel, Items, NetworkDeviceData
from trio_npu_dra.kit.base.errors import KubeError

KIND: Final = "NpuStatus"

LEVELS_LIMIT: Final = 9 << 10
"""Bytes of levels: all data have 10 Ki (resource.k8s.io/v1, AllocatedDeviceStatusDataMaxLength)."""


class DieStatus(ApiModel):
    """One die of a module."""

    physical_id: int
    sdid: int | None = None
    network_data: NetworkDeviceData | None = None


class NpuStatus(ApiModel):
    """What a device is, for programs that bring NPUs of several nodes together.

    Attributes:
        model: The generation, as in slices.
        physical_id: N of `/dev/davinciN` on the host; of a module, that of its first die; of a
            vNPU, that of its chip.
        server_index: The node's index in its super pod.
        sdid: The chip's address in its super pod; of a module, that of its first die.
        rack_id: Of a 950 in a super pod of racks.
        levels: The `level_list` of a 950 in the node's `/etc/hccl_rootinfo.json`, as it is there.
        module_dies: The dies of a module, by physical id.
    """

    api_version: Literal["npu.huawei.com/v1alpha1"]
    kind: Literal["NpuStatus"]
    type: OfferKind
    model: ChipFamily
    chip_name: str
    physical_id: int
    super_pod_id: int | None = None
    server_index: int | None = None
    sdid: int | None = None
    rack_id: int | None = None
    levels: Items[Any] = ()
    module_dies: Items[DieStatus] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimStatusWritten:
    """The API server took or refused the status of a claim."""

    error: KubeError | None = None


def npu_status(offer: Offer, levels: tuple[Any, ...] = ()) -> NpuStatus:
    """What the status says of a device (pure).

    *levels* of a 950 are left out if the API server would have no room for them.
    """
    first, is_module = offer.chips[0], offer.kind is OfferKind.MODULE
    dies = (
        DieStatus(
            physical_id=chip.physical_id, sdid=chip.super_pod_sdid, network_data=network_data(chip)
        )
        for chip in offer.chips
    )
    return NpuStatus(
        api_version=API_VERSION,
        kind=KIND,
        type=offer.kind,
        model=first.family,
        chip_name=first.chip_name,
        physical_id=first.physical_id,
        super_pod_id=first.super_pod_id,
        server_index=first.super_pod_server_index,
        sdid=None if offer.partition else first.super_pod_sdid,
        rack_id=first.rack_id,
        levels=levels if len(json.dumps(levels)) <= LEVELS_LIMIT else (),
        module_dies=tuple(dies) if is_module else (),
    )


def network_data(chip: Chip) -> NetworkDeviceData | None:
    """The addresses of a whole chip; None if it has none, or they are not known.

    Without the name of an interface: that would be one of the pod's, and the port is in the chip.
    """
    if chip.network is None:
        return None
    ips = tuple(str(address) for address in chip.network.addresses)
    return NetworkDeviceData(ips=ips, hardware_address=chip.network.mac)


def network_on_the_wire(chip: Chip) -> Mapping[str, Any] | None:
    """The same as the API has it."""
    data = network_data(chip)
    return None if data is None else data.to_wire()
