"""The gRPC methods of a DRA driver and its probes; made by protos/generate.py."""

from __future__ import annotations

from typing import Final

from trio_npu_dra.kit.grpc._generated import pluginregistration, v1
from trio_npu_dra.kit.grpc._generated.grpc.health import v1 as grpc_health_v1
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import (
    v1 as k8s_io_kubelet_pkg_apis_dra_v1,
)
from trio_npu_dra.kit.grpc.service import StreamMethod, UnaryMethod

NODE_WATCH_RESOURCES_V1: Final = StreamMethod(
    "/v1.DRAResourceHealth/NodeWatchResources",
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
