"""What is known of the resources of a node, kept by `resources.service` for others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.device import ResourceDevice

Devices: TypeAlias = Mapping[str, tuple[ResourceDevice, ...]]
"""The devices of each resource."""


def _none() -> Observable[Devices]:
    return Observable({})


def _nowhere() -> Observable[Mapping[str, str]]:
    return Observable({})


def _nobody() -> Observable[Mapping[int, tuple[str, ...]]]:
    return Observable({})


@dataclass(frozen=True, slots=True)
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

    pods_known: Observable[bool] = field(default_factory=lambda: Observable(False))
    leaving: Observable[Mapping[int, tuple[str, ...]]] = field(default_factory=_nobody)
    devices: Observable[Devices] = field(default_factory=_none)
    waiting: Observable[Mapping[str, str]] = field(default_factory=_nowhere)
