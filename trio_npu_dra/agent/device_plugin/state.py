"""What is known of the resources of a node, kept by `device_plugin.service` for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.kit.base.observable import Observable

Devices: TypeAlias = Mapping[str, tuple[ResourceDevice, ...]]
"""The devices of each resource."""


def whole_chips(devices: Devices) -> Mapping[str, tuple[Chip, ...]]:
    """The chips that are devices of each resource by themselves, not in parts."""
    return {
        resource: tuple(one.chip for one in some if one.part is None)
        for resource, some in devices.items()
    }


class ResourcesState:
    """What is known.

    Attributes:
        pods_known: Set once it is known which pods have what; then the DRA pool can be published
            without that.
        leaving: Chips that were in a resource when we started, and were not seen unused since: the
            names of their devices by physical id (`cdi_file.devices_before`).
        devices: What is served.
        waiting: Where chips are to go that are somewhere else, and why they are not there, by name.
    """

    def __init__(self) -> None:
        self.pods_known = Observable(False)
        self.leaving: Observable[Mapping[int, tuple[str, ...]]] = Observable({})
        self.devices: Observable[Devices] = Observable({})
        self.waiting: Observable[Mapping[str, str]] = Observable({})
