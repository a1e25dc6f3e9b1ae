"""The gRPC methods of a device plugin, as the .proto files declare them; most nodes have none."""

from __future__ import annotations

from typing import Final

from trio_npu_dra.kit.grpc._generated import v1 as pod_resources_v1
from trio_npu_dra.kit.grpc._generated import v1beta1 as device_plugin
from trio_npu_dra.kit.grpc.service import StreamMethod, UnaryMethod

_DEVICE_PLUGIN = "/v1beta1.DevicePlugin"

REGISTER_PLUGIN: Final = UnaryMethod(
    "/v1beta1.Registration/Register", device_plugin.RegisterRequest, device_plugin.Empty
)
PLUGIN_OPTIONS: Final = UnaryMethod(
    f"{_DEVICE_PLUGIN}/GetDevicePluginOptions",
    device_plugin.Empty,
    device_plugin.DevicePluginOptions,
)
LIST_AND_WATCH: Final = StreamMethod(
    f"{_DEVICE_PLUGIN}/ListAndWatch",
    device_plugin.Empty,
    device_plugin.ListAndWatchResponse,
)
PREFERRED_ALLOCATION: Final = UnaryMethod(
    f"{_DEVICE_PLUGIN}/GetPreferredAllocation",
    device_plugin.PreferredAllocationRequest,
    device_plugin.PreferredAllocationResponse,
)
ALLOCATE: Final = UnaryMethod(
    f"{_DEVICE_PLUGIN}/Allocate",
    device_plugin.AllocateRequest,
    device_plugin.AllocateResponse,
)

LIST_POD_RESOURCES: Final = UnaryMethod(
    "/v1.PodResourcesLister/List",
    pod_resources_v1.ListPodResourcesRequest,
    pod_resources_v1.ListPodResourcesResponse,
)
