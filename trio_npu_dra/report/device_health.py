"""The Board in the kubelet's terms of device health."""

from __future__ import annotations

from trio_npu_dra.kubelet.device_health import (
    MESSAGE_LIMIT,
    DeviceHealth,
    Devices,
    HealthState,
)
from trio_npu_dra.npu import model
from trio_npu_dra.npu.model import Board
from trio_npu_dra.report.words import joined

_STATES = {
    model.HealthState.UNKNOWN: HealthState.UNKNOWN,
    model.HealthState.HEALTHY: HealthState.HEALTHY,
    model.HealthState.UNHEALTHY: HealthState.UNHEALTHY,
}


def device_health(board: Board, pool: str) -> Devices:
    """How each device of *board* is, by its name in *pool* (pure)."""
    return tuple(
        DeviceHealth(
            pool=pool,
            device=npu.name,
            state=_STATES[npu.health.state],
            message=joined(npu.health.troubles, MESSAGE_LIMIT),
        )
        for npu in board.chips
    )
