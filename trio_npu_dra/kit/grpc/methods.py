"""The gRPC methods of plugins and probes; made by protos/generate.py."""

from __future__ import annotations

from typing import Final

from trio_npu_dra.kit.grpc._generated import pluginregistration, v1, v1beta1
from trio_npu_dra.kit.grpc._generated.grpc.health import v1 as grpc_health_v1
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import (
    v1 as k8s_io_kubelet_pkg_apis_dra_v1,
)
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
NODE_WATCH_RESOURCES_V1: Final = StreamMethod(
    "/v1.DRAResourceHealth/NodeWatchResources",
    v1.NodeWatchResourcesRequest,
    v1.NodeWatchResourcesResponse,
)
NODE_WATCH_RESOURCES_V1ALPHA1: Final = StreamMethod(
    "/v1alpha1.DRAResourceHealth/NodeWatchResources",
    v1.NodeWatchResourcesRequest,
    v1.NodeWatchResourcesResponse,
)
NODE_PREPARE_RESOURCES_V1: Final = UnaryMethod(
    "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
    k8s_io_kubelet_pkg_apis_dra_v1.NodePrepareResourcesRequest,
    k8s_io_kubelet_pkg_apis_dra_v1.NodePrepareResourcesResponse,
)
NODE_UNPREPARE_RESOURCES_V1: Final = UnaryMethod(
    "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
    k8s_io_kubelet_pkg_apis_dra_v1.NodeUnprepareResourcesRequest,
    k8s_io_kubelet_pkg_apis_dra_v1.NodeUnprepareResourcesResponse,
)
NODE_PREPARE_RESOURCES_V1BETA1: Final = UnaryMethod(
    "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
    k8s_io_kubelet_pkg_apis_dra_v1.NodePrepareResourcesRequest,
    k8s_io_kubelet_pkg_apis_dra_v1.NodePrepareResourcesResponse,
)
NODE_UNPREPARE_RESOURCES_V1BETA1: Final = UnaryMethod(
    "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
    k8s_io_kubelet_pkg_apis_dra_v1.NodeUnprepareResourcesRequest,
    k8s_io_kubelet_pkg_apis_dra_v1.NodeUnprepareResourcesResponse,
)
CHECK_V1: Final = UnaryMethod(
    "/grpc.health.v1.Health/Check",
    grpc_health_v1.HealthCheckRequest,
    grpc_health_v1.HealthCheckResponse,
)
GET_INFO: Final = UnaryMethod(
    "/pluginregistration.Registration/GetInfo",
    pluginregistration.InfoRequest,
    pluginregistration.PluginInfo,
)
NOTIFY_REGISTRATION_STATUS: Final = UnaryMethod(
    "/pluginregistration.Registration/NotifyRegistrationStatus",
    pluginregistration.RegistrationStatus,
    pluginregistration.RegistrationStatusResponse,
)
LIST_V1: Final = UnaryMethod(
    "/v1.PodResourcesLister/List",
    v1.ListPodResourcesRequest,
    v1.ListPodResourcesResponse,
)
