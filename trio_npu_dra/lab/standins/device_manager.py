"""A kubelet as a device plugin sees it: its device manager, and its list of pods.

It does what the kubelet of 1.36 does (pkg/kubelet/cm/devicemanager). A start removes all sockets
from the folder and forgets all plugins. It keeps one client a resource, the newest; when the stream
of any client of a resource ends, it closes the client that it has then, and takes the devices of
the resource for unhealthy until a plugin registers again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import trio

from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import (
    Channel,
    RpcError,
    Status,
    listen_unix,
    methods,
    open_channel,
    serve,
)
from trio_npu_dra.kit.grpc._generated import v1, v1beta1

CONNECT_SECONDS = 10.0
CALL_SECONDS = 45.0
_EXTENDED = re.compile(
    r"(?![^/]*kubernetes\.io/)[a-z0-9.-]+/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the kubelet knows of a resource.

    Attributes:
        devices: The last list, by id.
        connected: Whether its plugin is there; else all its devices count as unhealthy.
    """

    devices: Mapping[str, v1beta1.Device]
    connected: bool = True

    @property
    def allocatable(self) -> frozenset[str]:
        """Ids of the devices that a pod may get."""
        return frozenset(
            id_
            for id_, device in self.devices.items()
            if self.connected and device.health == "Healthy"
        )


@dataclass(eq=False)
class _Client:
    resource: str
    channel: Channel
    scope: trio.CancelScope


class DeviceManager:
    """The device plugins of a node; made by `open_device_manager`.

    Attributes:
        resources: What is known of each resource.
        registrations: The plugins that it took.
        refused: Those that it did not take.
        pods: What each pod has of which resource, by namespace and name.
    """

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self._folder = folder
        self._nursery = nursery
        self._clients: dict[str, _Client] = {}
        self.resources: Observable[Mapping[str, Known]] = Observable(MappingProxyType({}))
        self.registrations: list[v1beta1.RegisterRequest] = []
        self.refused: list[v1beta1.RegisterRequest] = []
        self.pods: dict[tuple[str, str], Mapping[str, Iterable[str]]] = {}

    async def wait_for(self, resource: str, *allocatable: str) -> None:
        """Wait until just these devices of a resource can be allocated."""
        wanted = frozenset(allocatable)
        await self.resources.wait_until(
            lambda known: resource in known and known[resource].allocatable == wanted
        )

    async def allocate(self, resource: str, *containers: Iterable[str]) -> list[list[str]]:
        """Let the plugin give devices to containers of one pod; the CDI names for each.

        Raises:
            RpcError: It refused.
        """
        request = v1beta1.AllocateRequest(
            container_requests=[
                v1beta1.ContainerAllocateRequest(devices_ids=list(ids)) for ids in containers
            ]
        )
        reply = await self._clients[resource].channel.unary(
            methods.ALLOCATE_V1BETA1, request, timeout_seconds=CALL_SECONDS
        )
        return [[given.name for given in one.cdi_devices] for one in reply.container_responses]

    async def preferred(
        self, resource: str, size: int, *, available: Iterable[str], needed: Iterable[str] = ()
    ) -> list[str]:
        """What the plugin would give to a container."""
        one = v1beta1.ContainerPreferredAllocationRequest(
            available_device_ids=list(available),
            must_include_device_ids=list(needed),
            allocation_size=size,
        )
        reply = await self._clients[resource].channel.unary(
            methods.GET_PREFERRED_ALLOCATION_V1BETA1,
            v1beta1.PreferredAllocationRequest(container_requests=[one]),
            timeout_seconds=CALL_SECONDS,
        )
        return reply.container_responses[0].device_ids

    def disconnect(self, resource: str) -> None:
        """Close the client of a resource, as when an earlier plugin of it ends."""
        self._clients[resource].scope.cancel()

    # --- what it serves --------------------------------------------------------------------------

    async def register(self, request: v1beta1.RegisterRequest) -> v1beta1.Empty:
        """Connect to a plugin and watch it, or refuse it."""
        if request.version != "v1beta1":
            raise RpcError(Status.UNKNOWN, f"version {request.version!r} is not supported")
        if not _EXTENDED.fullmatch(request.resource_name):
            self.refused.append(request)
            raise RpcError(Status.UNKNOWN, f"{request.resource_name!r} is no extended resource")
        await self._nursery.start(self._run, request)
        self.registrations.append(request)
        return v1beta1.Empty()

    async def list_pods(self, _: v1.ListPodResourcesRequest) -> v1.ListPodResourcesResponse:
        """All pods and what they have, each in one container."""
        return v1.ListPodResourcesResponse(
            pod_resources=[
                v1.PodResources(
                    namespace=namespace,
                    name=name,
                    containers=[
                        v1.ContainerResources(
                            name="main",
                            devices=[
                                v1.ContainerDevices(resource_name=resource, device_ids=list(ids))
                                for resource, ids in given.items()
                            ],
                        )
                    ],
                )
                for (namespace, name), given in self.pods.items()
            ]
        )

    async def _run(
        self, request: v1beta1.RegisterRequest, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Be the client of a plugin until its stream ends."""
        resource = request.resource_name
        with trio.CancelScope() as scope:
            async with open_channel(self._folder / request.endpoint) as channel:
                await channel.unary(
                    methods.GET_DEVICE_PLUGIN_OPTIONS_V1BETA1,
                    v1beta1.Empty(),
                    timeout_seconds=CONNECT_SECONDS,
                )
                self._clients[resource] = _Client(resource, channel, scope)
                task_status.started()
                try:
                    async with channel.stream(
                        methods.LIST_AND_WATCH_V1BETA1, v1beta1.Empty()
                    ) as lists:
                        async for each in lists:
                            devices = {device.id: device for device in each.devices}
                            self._know(resource, Known(devices=MappingProxyType(devices)))
                except RpcError:
                    pass  # the real kubelet only logs it
        if (now := self._clients.pop(resource, None)) is not None:
            now.scope.cancel()
            if (known := self.resources.value.get(resource)) is not None:
                self._know(resource, replace(known, connected=False))

    def _know(self, resource: str, known: Known) -> None:
        self.resources.set(MappingProxyType({**self.resources.value, resource: known}))


@asynccontextmanager
async def open_device_manager(folder: Path, pod_resources: Path) -> AsyncIterator[DeviceManager]:
    """Start a kubelet's device manager; leaving kills it.

    Args:
        folder: That of device plugins.
        pod_resources: That of the socket where pods are listed.
    """
    _remove_sockets(folder)
    async with trio.open_nursery() as nursery:
        manager = DeviceManager(folder, nursery)
        register = methods.REGISTER_V1BETA1.handled_by(manager.register)
        pods = methods.LIST_V1.handled_by(manager.list_pods)
        nursery.start_soon(serve, listen_unix(folder / "kubelet.sock"), [register])
        nursery.start_soon(serve, listen_unix(pod_resources / "kubelet.sock"), [pods])
        yield manager
        nursery.cancel_scope.cancel()


def _remove_sockets(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()
