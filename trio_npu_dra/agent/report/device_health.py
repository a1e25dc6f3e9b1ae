"""The health of offers as the kubelet reports it of devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.kit.kubelet.device_health import MESSAGE_LIMIT, DeviceHealth, DeviceHealths


def device_health(offered: Iterable[Offer], pool: str) -> DeviceHealths:
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


def joined(parts: Sequence[str], limit: int) -> str:
    """The first of *parts*, as many as fit into *limit* characters, and how many more there are.

    A first part that is too long is cut.
    """
    for count in range(len(parts), 0, -1):
        left = len(parts) - count
        line = "; ".join(parts[:count]) + (f"; and {left} more" if left else "")
        if len(line) <= limit:
            return line
    return f"{parts[0][: limit - 3]}..." if parts else ""
