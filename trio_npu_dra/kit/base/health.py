"""The health of a device, in the kubelet's words."""

from __future__ import annotations

from enum import Enum


class HealthState(Enum):
    """The states of the kubelet's device health API, with the words of a pod's status."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
