"""The DevicePlugin service, v1beta1, in front of a `DevicePlugin`."""

from __future__ import annotations

import logging

from trio_npu_dra.kit.base.errors import AllocationRefused
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import Route, RpcError, Send, Status, methods
from trio_npu_dra.kit.grpc._generated import v1beta1
from trio_npu_dra.kit.kubelet.device_plugin.plugin import Choice, DevicePlugin, PluginDevice

log = logging.getLogger(__name__)

ERROR_LIMIT = 1000
"""Characters of a refusal: it becomes an event of the pod, which has room for as many."""

OPTIONS = v1beta1.DevicePluginOptions(
    pre_start_required=False, get_preferred_allocation_available=True
)
"""A container needs nothing more before it starts, so the kubelet need not call for each."""


def routes(plugin: DevicePlugin, streams: Observable[int]) -> tuple[Route, ...]:
    """The methods that the kubelet calls; PreStartContainer is none of them (`OPTIONS`).

    *streams* counts the streams of lists that are open.
    """

    async def options(_: v1beta1.Empty) -> v1beta1.DevicePluginOptions:
        return OPTIONS

    async def watch(_: v1beta1.Empty, send: Send[v1beta1.ListAndWatchResponse]) -> None:
        streams.set(streams.value + 1)
        try:
            async for devices in plugin.devices.changes():
                await send(v1beta1.ListAndWatchResponse(devices=[_device(one) for one in devices]))
        finally:
            streams.set(streams.value - 1)

    async def prefer(
        request: v1beta1.PreferredAllocationRequest,
    ) -> v1beta1.PreferredAllocationResponse:
        chosen = [
            await plugin.prefer(
                Choice(
                    available=tuple(one.available_device_ids),
                    needed=tuple(one.must_include_device_ids),
                    size=one.allocation_size,
                )
            )
            for one in request.container_requests
        ]
        return v1beta1.PreferredAllocationResponse(
            container_responses=[
                v1beta1.ContainerPreferredAllocationResponse(device_ids=list(ids)) for ids in chosen
            ]
        )

    async def allocate(request: v1beta1.AllocateRequest) -> v1beta1.AllocateResponse:
        ids = [one.devices_ids for one in request.container_requests]
        fields = {"resource": plugin.resource, "devices": ids}
        try:
            containers = await plugin.allocate(ids)
        except AllocationRefused as error:
            text = str(error)[:ERROR_LIMIT].encode(errors="replace").decode()
            log.warning("devices not allocated", extra={**fields, "error": text})
            raise RpcError(Status.FAILED_PRECONDITION, text) from error
        log.info("devices allocated", extra=fields)
        return v1beta1.AllocateResponse(
            container_responses=[
                v1beta1.ContainerAllocateResponse(
                    cdi_devices=[v1beta1.CdiDevice(name=name) for name in names]
                )
                for names in containers
            ]
        )

    return (
        methods.GET_DEVICE_PLUGIN_OPTIONS_V1BETA1.handled_by(options),
        methods.LIST_AND_WATCH_V1BETA1.handled_by(watch),
        methods.GET_PREFERRED_ALLOCATION_V1BETA1.handled_by(prefer),
        methods.ALLOCATE_V1BETA1.handled_by(allocate),
    )


def _device(device: PluginDevice) -> v1beta1.Device:
    topology = None
    if device.numa_node is not None:
        topology = v1beta1.TopologyInfo(nodes=[v1beta1.NumaNode(id=device.numa_node)])
    health = "Healthy" if device.healthy else "Unhealthy"
    return v1beta1.Device(id=device.id, health=health, topology=topology)
