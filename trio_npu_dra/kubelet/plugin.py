"""The two sockets of the plugin, for the daemon to start and stop in order.

Start `serve_plugin` first and `serve_registration` once it has started: the kubelet calls the
service the moment it finds the registration. Stop the other way round, each by cancelling the scope
it runs in.
"""

from __future__ import annotations

from pathlib import Path

import trio

from trio_npu_dra.errors import StorageError
from trio_npu_dra.kubelet import device_health, dra_plugin, registration
from trio_npu_dra.kubelet.driver import Driver
from trio_npu_dra.observable import Observable
from trio_npu_dra.rpc import Bridge


async def serve_plugin(
    bridge: Bridge,
    driver: Driver,
    health: Observable[device_health.Devices],
    *,
    socket: Path,
    grace_seconds: float,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Prepare, unprepare and report health on the service socket until cancelled.

    Args:
        bridge: An open bridge.
        driver: Does the work.
        health: All devices of the node, as the kubelet is to see them.
        socket: The service socket; its own directory is made, that one's parent must exist.
        grace_seconds: How long a stop waits for calls in flight.
        task_status: Told when the kubelet can connect.

    Raises:
        ConfigError: The path cannot be a socket's.
        StorageError: The file system refuses.
    """
    try:
        socket.parent.mkdir(mode=0o750, exist_ok=True)
    except FileNotFoundError:
        pass  # the socket's own error says it better
    except OSError as error:
        raise StorageError(f"cannot make {socket.parent}: {error.strerror}") from error
    await bridge.serve_unix(
        socket,
        [*dra_plugin.routes(driver), *device_health.routes(health)],
        grace_seconds=grace_seconds,
        task_status=task_status,
    )


async def serve_registration(
    bridge: Bridge,
    driver_name: str,
    status: Observable[registration.RegistrationStatus],
    *,
    socket: Path,
    endpoint: Path,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Let the kubelet find us until cancelled.

    Args:
        bridge: An open bridge.
        driver_name: As in DeviceClasses and ResourceSlices.
        status: Set to what the kubelet decides; back to not registered at the end.
        socket: The registration socket.
        endpoint: The service socket, as the kubelet sees it; must listen already.
        task_status: Told when the kubelet can connect.

    Raises:
        ConfigError: The path cannot be a socket's.
        StorageError: The file system refuses.
    """
    try:
        await bridge.serve_unix(
            socket,
            registration.routes(driver_name, endpoint, status),
            grace_seconds=1,
            task_status=task_status,
        )
    finally:
        status.set(registration.NOT_REGISTERED)
