"""One resource from a socket of its own, registered with the kubelet as often as that is needed.

A kubelet that starts removes all sockets from the folder of device plugins, makes its own again and
knows no plugin. Its end also ends our stream of lists; then we try to register until a kubelet
accepts us, and replace our socket if it is gone.

A kubelet drops a plugin without a restart, too. It keeps its clients by resource, so when the
stream of an earlier plugin of the resource ends, it closes that of the plugin that has taken its
place (pkg/kubelet/cm/devicemanager/plugin/v1beta1). So the end of a stream always means: register.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Final

import trio

from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.base.errors import ConfigError, StorageError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import RpcError, is_socket, listen_unix, methods, open_channel, serve
from trio_npu_dra.kit.grpc._generated import v1beta1
from trio_npu_dra.kit.kubelet.device_plugin import service
from trio_npu_dra.kit.kubelet.device_plugin.plugin import DevicePlugin
from trio_npu_dra.kit.kubelet.endpoints import KUBELET_SOCKET, device_plugin_socket

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Between two checks of our socket, and between two tries to register."""

_GRACE_SECONDS: Final = 5.0  # for calls in flight at a stop, which can wait for a process to end
_REGISTER_SECONDS: Final = 15.0  # the kubelet connects to us meanwhile, which may take it 10 s
_STREAM_SECONDS: Final = 10.0  # how long a kubelet that accepted us may take to ask for the list


async def serve_resource(
    plugin: DevicePlugin,
    *,
    folder: Path,
    driver_name: str,
) -> None:
    """Be the device plugin of one resource until cancelled.

    Our socket is in the *folder* of the kubelet's socket, which may be missing for now.
    """
    registrar = _Registrar(plugin, folder, driver_name)
    answer = partial(
        serve,
        services=service.routes(plugin, registrar.streams),
        grace_seconds=_GRACE_SECONDS,
    )
    while True:
        async with trio.open_nursery() as nursery:
            try:
                listener = await disk.run(partial(listen_unix, registrar.socket))
                nursery.start_soon(answer, listener)
            except (ConfigError, StorageError) as error:
                registrar.warn_once("a device plugin's socket cannot be made", str(error))
                await trio.sleep(LOOK_SECONDS)
            else:
                await registrar.stay_registered()
            nursery.cancel_scope.cancel()


class _Registrar:
    """Registers one resource.

    Attributes:
        socket: Its socket.
        streams: How many streams of lists the kubelet has open.
    """

    def __init__(self, plugin: DevicePlugin, folder: Path, driver_name: str) -> None:
        self.socket = device_plugin_socket(folder, driver_name, plugin.resource)
        self._plugin = plugin
        self._kubelet = folder / KUBELET_SOCKET
        self.streams = Observable(0)
        self._problem = ""

    async def stay_registered(self) -> None:
        """Register, and again after each loss; returns when our socket is gone."""
        while await self._is_there():
            if not await self._register():
                await trio.sleep(LOOK_SECONDS)
                continue
            with trio.move_on_after(_STREAM_SECONDS):
                await self.streams.wait_until(bool)
            while self.streams.value and await self._is_there():
                with trio.move_on_after(LOOK_SECONDS):
                    await self.streams.wait_until(lambda streams: not streams)

    async def _is_there(self) -> bool:
        return await disk.run(partial(is_socket, self.socket))

    def warn_once(self, what: str, problem: str) -> None:
        """Log a problem once, not every few seconds."""
        if problem != self._problem:
            self._problem = problem
            log.warning(what, extra={"resource": self._plugin.resource, "problem": problem})

    async def _register(self) -> bool:
        """Try once to register; return whether the kubelet accepted us."""
        request = v1beta1.RegisterRequest(
            version="v1beta1",
            endpoint=self.socket.name,
            resource_name=self._plugin.resource,
            options=service.OPTIONS,
        )
        try:
            async with open_channel(self._kubelet) as channel:
                await channel.unary(
                    methods.REGISTER_V1BETA1, request, timeout_seconds=_REGISTER_SECONDS
                )
        except RpcError as error:
            self.warn_once("a device plugin is not registered with the kubelet", str(error))
            return False
        self._problem = ""
        log.info("device plugin registered", extra={"resource": self._plugin.resource})
        return True
