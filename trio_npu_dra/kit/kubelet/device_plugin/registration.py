"""One resource from a socket of its own, registered with the kubelet as often as that is needed.

A kubelet that starts removes all sockets from the folder of device plugins, makes its own anew and
knows no plugin. Its end also ends our stream of lists; then we try to register until a kubelet
takes us, and make our socket anew if it is gone.

A kubelet drops a plugin without a restart, too. It keeps its clients by resource, so when the
stream of an earlier plugin of the resource ends, it closes that of the plugin that has taken its
place (pkg/kubelet/cm/devicemanager/plugin/v1beta1). So the end of a stream always means: register.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from trio_npu_dra.kit.base.errors import ConfigError, StorageError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import Bridge, RpcError, is_socket
from trio_npu_dra.kit.grpc import device_plugin_methods as methods
from trio_npu_dra.kit.grpc._generated import v1beta1
from trio_npu_dra.kit.kubelet.device_plugin import service
from trio_npu_dra.kit.kubelet.device_plugin.plugin import DevicePlugin
from trio_npu_dra.kit.kubelet.endpoints import KUBELET_SOCKET, device_plugin_socket

log = logging.getLogger(__name__)

VERSION: Final = "v1beta1"

LOOK_SECONDS: Final = 5.0
"""Between two looks at our socket, and between two tries to register."""

GRACE_SECONDS: Final = 5.0
"""How long a stop waits for the kubelet's calls in flight, which can wait for a process to end."""

_REGISTER_SECONDS: Final = 15.0  # the kubelet connects to us meanwhile, which may take it 10 s
_STREAM_SECONDS: Final = 10.0  # how long a kubelet that took us may take to ask for the list


async def serve_resource(
    bridge: Bridge,
    plugin: DevicePlugin,
    *,
    folder: Path,
    driver_name: str,
    grace_seconds: float = GRACE_SECONDS,
) -> None:
    """Be the device plugin of one resource until cancelled.

    Args:
        bridge: An open bridge.
        plugin: Its devices.
        folder: That of the kubelet's socket, which may be missing for now; ours lies beside it.
        driver_name: Is in the name of our socket.
        grace_seconds: How long calls in flight may take at the end.
    """
    socket = device_plugin_socket(folder, driver_name, plugin.resource)
    await _Registrar(bridge, plugin, socket, folder / KUBELET_SOCKET, grace_seconds).run()


class _Registrar:
    def __init__(
        self, bridge: Bridge, plugin: DevicePlugin, socket: Path, kubelet: Path, grace: float
    ) -> None:
        self._bridge = bridge
        self._plugin = plugin
        self._socket = socket
        self._kubelet = kubelet
        self._grace = grace
        self._streams = Observable(0)
        self._problem = ""

    async def run(self) -> None:
        """Listen and stay registered; listen anew when the socket is gone."""
        while True:
            async with trio.open_nursery() as nursery:
                if await self._listen(nursery):
                    await self._stay_registered()
                else:
                    await trio.sleep(LOOK_SECONDS)
                nursery.cancel_scope.cancel()

    async def _listen(self, nursery: trio.Nursery) -> bool:
        """Start to answer the kubelet; whether that is possible."""
        serve = partial(self._bridge.serve_unix, grace_seconds=self._grace)
        try:
            await nursery.start(
                serve, self._socket, service.routes(self._plugin, self._while_watched)
            )
        except (ConfigError, StorageError) as error:
            self._warn_once("a device plugin's socket cannot be made", str(error))
            return False
        return True

    async def _stay_registered(self) -> None:
        """Register, and again after each loss; returns when our socket is gone."""
        while is_socket(self._socket):
            if await self._register():
                await self._until_lost()
            else:
                await trio.sleep(LOOK_SECONDS)

    async def _register(self) -> bool:
        """Try once to register; whether the kubelet took us."""
        request = v1beta1.RegisterRequest(
            version=VERSION,
            endpoint=self._socket.name,
            resource_name=self._plugin.resource,
            options=service.OPTIONS,
        )
        try:
            async with self._bridge.dial(self._kubelet) as channel:
                await channel.unary(
                    methods.REGISTER_PLUGIN, request, timeout_seconds=_REGISTER_SECONDS
                )
        except RpcError as error:
            self._warn_once("a device plugin is not registered with the kubelet", str(error))
            return False
        self._problem = ""
        log.info("device plugin registered", extra={"resource": self._plugin.resource})
        return True

    async def _until_lost(self) -> None:
        """Wait until the kubelet does not watch us any more, or our socket is gone."""
        with trio.move_on_after(_STREAM_SECONDS):
            await self._streams.wait_until(bool)
        while self._streams.value and is_socket(self._socket):
            with trio.move_on_after(LOOK_SECONDS):
                await self._streams.wait_until(lambda streams: not streams)

    @contextmanager
    def _while_watched(self) -> Iterator[None]:
        self._streams.set(self._streams.value + 1)
        try:
            yield
        finally:
            self._streams.set(self._streams.value - 1)

    def _warn_once(self, what: str, problem: str) -> None:
        """Say what is wrong once, not every few seconds."""
        if problem != self._problem:
            self._problem = problem
            log.warning(what, extra={"resource": self._plugin.resource, "problem": problem})
