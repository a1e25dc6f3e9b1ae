"""The health of a device, as the kubelet and everybody here tell it."""

from __future__ import annotations

from enum import Enum


class HealthState(Enum):
    """The states of a device in the kubelet's device health API, in the words of a pod's status."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
