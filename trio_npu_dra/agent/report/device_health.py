"""The health of offers as the kubelet reports it of devices."""

from __future__ import annotations

from collections.abc import Iterable

from trio_npu_dra.agent.report.words import joined
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.kit.kubelet.device_health import MESSAGE_LIMIT, DeviceHealth, Devices


def device_health(offered: Iterable[Offer], pool: str) -> Devices:
    """The health of each device of *pool* (pure)."""
    return tuple(
        DeviceHealth(
            pool=pool,
            device=offer.name,
            state=health.state,
            message=joined(health.troubles, MESSAGE_LIMIT),
        )
        for offer in offered
        for health in [offer.health]
    )
