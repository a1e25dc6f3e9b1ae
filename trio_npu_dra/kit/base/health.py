"""The health of a device, with the kubelet's names."""

from __future__ import annotations

from enum import Enum


class HealthState(Enum):
    """The states of the kubelet's device health API, with the values of a pod's status."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
