"""The health stream: the health of each device, which the kubelet shows in pod status."""

import time
from dataclasses import dataclass

import trio

from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import Route, Send, methods
from trio_npu_dra.kit.grpc._generated import v1

RESEND_SECONDS = 10.0
"""How long a list stands before it is repeated unchanged."""

TIMEOUT_SECONDS = 30
"""How long a list is valid for the kubelet: a lost or late list must not make health unknown."""

MESSAGE_LIMIT = 1024
"""Characters of a message that the kubelet keeps."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The health of one device.

    Attributes:
        pool: The pool it is published in.
        device: Its name in that pool.
        state: The verdict.
        message: One line for people; empty if nothing is wrong.
    """

    pool: str
    device: str
    state: HealthState
    message: str = ""


DeviceHealths = tuple[DeviceHealth, ...]


def routes(devices: Observable[DeviceHealths]) -> tuple[Route, ...]:
    """NodeWatchResources of both versions, over one list of all devices.

    Kubelets with the feature open a stream on every plugin, whatever it says it supports, and log
    an error every 5 s where they are refused. So both are always served.
    """

    async def watch(
        _: v1.NodeWatchResourcesRequest, send: Send[v1.NodeWatchResourcesResponse]
    ) -> None:
        """Send all now, after every change, and after `RESEND_SECONDS` without one."""
        changes = devices.changes()
        while True:
            with trio.move_on_after(RESEND_SECONDS):
                await anext(changes)
            await send(_reply(devices.value))

    return (
        methods.NODE_WATCH_RESOURCES_V1.handled_by(watch),
        methods.NODE_WATCH_RESOURCES_V1ALPHA1.handled_by(watch),
    )


def _reply(devices: DeviceHealths) -> v1.NodeWatchResourcesResponse:
    now = int(time.time())
    return v1.NodeWatchResourcesResponse(
        devices=[
            v1.DeviceHealth(
                device=v1.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
                health=v1.HealthStatus[device.state.name],
                last_updated_time=now,
                health_check_timeout_seconds=TIMEOUT_SECONDS,
                message=device.message[:MESSAGE_LIMIT],
            )
            for device in devices
        ]
    )
