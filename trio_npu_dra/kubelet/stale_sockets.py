"""Removes the sockets of instances of this driver that were killed, and nobody else's.

An instance that ends in order removes its own sockets. After SIGKILL they stay, under names that no
later pod uses again, and the kubelet goes on calling the registration socket for half an hour.

Whose file it is, is certain: service sockets lie in our own folder, and a registration socket is
removed only under the exact name that follows from the pod UID of such a service socket. That its
owner is dead is certain too, once connecting is refused. An instance listens on its service socket
before its registration socket exists and until after that is gone; and the moment between bind and
listen, in which a live instance refuses as well, is inside the lock that we hold while we look.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from trio_npu_dra import file_lock, storage
from trio_npu_dra.errors import StorageError
from trio_npu_dra.rpc import is_refused, registration_socket, service_sockets

log = logging.getLogger(__name__)

_INTERVAL = 60.0  # seconds between two looks: the other instance may be killed after our start


@asynccontextmanager
async def starting(socket: Path) -> AsyncIterator[None]:
    """While inside, no instance takes *socket* for one that nobody listens on.

    Args:
        socket: In the driver's folder.

    Raises:
        StorageError: The lock beside the socket cannot be had.
    """
    lock = socket.with_name("sockets.lock")
    if not lock.parent.is_dir():
        yield  # the socket's own error says it better
        return
    async with file_lock.hold(lock, pause_seconds=0.002, patience_seconds=3):
        yield


async def remove_stale_sockets(driver_name: str, service: Path, registration: Path) -> None:
    """Look for sockets that another instance has left, at once and then every minute, without end.

    Args:
        driver_name: As in DeviceClasses and ResourceSlices.
        service: Our own service socket.
        registration: Our own registration socket.
    """
    while True:
        try:
            if others := _others(driver_name, service):
                async with starting(service):
                    _sweep(others, driver_name, registration.parent)
        except StorageError as error:
            log.warning("sockets of ended instances cannot be removed: %s", error)
        await trio.sleep(_INTERVAL)


def _others(driver_name: str, service: Path) -> dict[str | None, Path]:
    found = service_sockets(service.parent.parent, driver_name)
    return {uid: path for uid, path in found.items() if path != service}


def _sweep(others: Mapping[str | None, Path], driver_name: str, registrar_directory: Path) -> None:
    for uid, service in others.items():
        if not is_refused(service):
            continue
        registration = registration_socket(registrar_directory, driver_name, uid)
        if is_refused(registration):
            storage.remove(registration)
        storage.remove(service)
        log.warning("sockets of a killed instance removed", extra={"pod_uid": uid or "none"})
