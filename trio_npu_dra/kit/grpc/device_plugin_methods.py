"""The gRPC methods of a device plugin, which most nodes do not have; made by protos/generate.py."""

from __future__ import annotations

from typing import Final

from trio_npu_dra.kit.grpc._generated import v1, v1beta1
from trio_npu_dra.kit.grpc.service import StreamMethod, UnaryMethod

REGISTER_V1BETA1: Final = UnaryMethod(
    "/v1beta1.Registration/Register",
    v1beta1.RegisterRequest,
    v1beta1.Empty,
)
GET_DEVICE_PLUGIN_OPTIONS_V1BETA1: Final = UnaryMethod(
    "/v1beta1.DevicePlugin/GetDevicePluginOptions",
    v1beta1.Empty,
    v1beta1.DevicePluginOptions,
)
LIST_AND_WATCH_V1BETA1: Final = StreamMethod(
    "/v1beta1.DevicePlugin/ListAndWatch",
    v1beta1.Empty,
    v1beta1.ListAndWatchResponse,
)
GET_PREFERRED_ALLOCATION_V1BETA1: Final = UnaryMethod(
    "/v1beta1.DevicePlugin/GetPreferredAllocation",
    v1beta1.PreferredAllocationRequest,
    v1beta1.PreferredAllocationResponse,
)
ALLOCATE_V1BETA1: Final = UnaryMethod(
    "/v1beta1.DevicePlugin/Allocate",
    v1beta1.AllocateRequest,
    v1beta1.AllocateResponse,
)
PRE_START_CONTAINER_V1BETA1: Final = UnaryMethod(
    "/v1beta1.DevicePlugin/PreStartContainer",
    v1beta1.PreStartContainerRequest,
    v1beta1.PreStartContainerResponse,
)
LIST_V1: Final = UnaryMethod(
    "/v1.PodResourcesLister/List",
    v1.ListPodResourcesRequest,
    v1.ListPodResourcesResponse,
)
