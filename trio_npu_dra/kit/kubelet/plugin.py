"""The sockets of the plugin, and the order in which they open and close.

The service opens first, because the kubelet calls it the moment it finds the registration. It
closes last: after the registration is gone, calls in flight still finish.
"""

from __future__ import annotations

from functools import partial

import trio

from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import listen_unix, serve
from trio_npu_dra.kit.kubelet import device_health, dra_plugin, registration
from trio_npu_dra.kit.kubelet.driver import Driver
from trio_npu_dra.kit.kubelet.endpoints import Endpoints, remove_replaced_sockets


async def serve_kubelet(
    driver: Driver,
    health: Observable[device_health.DeviceHealths],
    status: Observable[registration.RegistrationStatus],
    *,
    endpoints: Endpoints,
    stop: trio.Event,
    grace_seconds: float,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Be this node's plugin until *stop* is set, then let calls in flight finish and return.

    Args:
        driver: Prepares and unprepares.
        health: The health of all devices of the node.
        status: Set to each decision of the kubelet about our registration.
        endpoints: The sockets; the plugin's folder is made, the folders above it must exist.
        stop: Ends it in order; after a cancellation both sockets close at the same time.
        grace_seconds: How long calls in flight may take after *stop*.
        task_status: Started when the kubelet can find and call us.

    Raises:
        ConfigError: A path cannot be a socket's.
        StorageError: The file system refuses.
    """
    calls = [*dra_plugin.routes(driver), *device_health.routes(health)]
    finding = registration.routes(endpoints.driver_name, endpoints.service, status)
    async with trio.open_nursery() as service:
        await disk.run(endpoints.make_folder)
        listener = await disk.run(partial(listen_unix, endpoints.service))
        service.start_soon(partial(serve, grace_seconds=grace_seconds), listener, calls)
        try:
            async with trio.open_nursery() as registrar:
                registrar.start_soon(_remove_replaced, endpoints, status)
                listener = await disk.run(partial(listen_unix, endpoints.registration))
                registrar.start_soon(partial(serve, grace_seconds=1), listener, finding)
                task_status.started()
                await stop.wait()
                registrar.cancel_scope.cancel()
        finally:
            status.set(registration.NOT_REGISTERED)
        service.cancel_scope.cancel()


async def _remove_replaced(
    endpoints: Endpoints, status: Observable[registration.RegistrationStatus]
) -> None:
    """Remove sockets of other instances once the kubelet calls us."""
    await status.wait_until(lambda now: now.registered)
    await disk.run(partial(remove_replaced_sockets, endpoints))
