"""The sockets of the plugin, and the order in which they open and close.

The service opens first, because the kubelet calls it the moment it finds the registration. It
closes last: after the registration is gone, calls in flight still finish.

All functions here raise ConfigError if a path cannot be a socket's, and StorageError if the file
system refuses.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import listen_unix, serve
from trio_npu_dra.kit.kubelet import device_health, dra_plugin, registration
from trio_npu_dra.kit.kubelet.driver import Driver
from trio_npu_dra.kit.kubelet.endpoints import Endpoints, remove_dead_sockets


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
        endpoints: The sockets.
        stop: Ends it in order; after a cancellation both sockets close at the same time.
        grace_seconds: How long calls in flight may take after *stop*.
        task_status: Started when the kubelet can find and call us.
    """
    service = partial(serve_plugin, socket=endpoints.service, grace_seconds=grace_seconds)
    registrar = partial(
        serve_registration, socket=endpoints.registration, endpoint=endpoints.service
    )
    async with trio.open_nursery() as service_tasks:
        _make_folder(endpoints.plugin_directory)
        async with endpoints.starting():
            await service_tasks.start(service, driver, health)
        async with trio.open_nursery() as registration_tasks:
            registration_tasks.start_soon(remove_dead_sockets, endpoints)
            await registration_tasks.start(registrar, endpoints.driver_name, status)
            task_status.started()
            await stop.wait()
            registration_tasks.cancel_scope.cancel()
        service_tasks.cancel_scope.cancel()


async def serve_plugin(
    driver: Driver,
    health: Observable[device_health.DeviceHealths],
    *,
    socket: Path,
    grace_seconds: float,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Prepare, unprepare and report health on the service *socket* until cancelled.

    It makes the socket's folder; the folder above must exist.
    """
    _make_folder(socket.parent)
    listener = listen_unix(socket)
    task_status.started()
    routes = [*dra_plugin.routes(driver), *device_health.routes(health)]
    await serve(listener, routes, grace_seconds=grace_seconds)


async def serve_registration(
    driver_name: str,
    status: Observable[registration.RegistrationStatus],
    *,
    socket: Path,
    endpoint: Path,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Let the kubelet find *endpoint*, which must listen already, by *socket*, until cancelled."""
    try:
        listener = listen_unix(socket)
        task_status.started()
        await serve(listener, registration.routes(driver_name, endpoint, status), grace_seconds=1)
    finally:
        status.set(registration.NOT_REGISTERED)


def _make_folder(folder: Path) -> None:
    if folder.parent.is_dir():  # else the socket's own error says it better
        storage.make_folder(folder, mode=storage.PLUGIN_FOLDER_MODE)
