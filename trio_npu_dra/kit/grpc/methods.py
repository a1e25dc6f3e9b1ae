"""The gRPC methods of a DRA driver and its probes, as the .proto files declare them."""

from __future__ import annotations

from typing import Final

from trio_npu_dra.kit.grpc._generated import pluginregistration
from trio_npu_dra.kit.grpc._generated import v1 as health_v1
from trio_npu_dra.kit.grpc._generated import v1alpha1 as health_v1alpha1
from trio_npu_dra.kit.grpc._generated.grpc.health import v1 as grpc_health_v1
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1 as dra_v1
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1beta1 as dra_v1beta1
from trio_npu_dra.kit.grpc.service import StreamMethod, UnaryMethod

_REGISTRATION = "/pluginregistration.Registration"
_DRA_V1 = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_DRA_V1BETA1 = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"

GET_INFO: Final = UnaryMethod(
    f"{_REGISTRATION}/GetInfo", pluginregistration.InfoRequest, pluginregistration.PluginInfo
)
NOTIFY_REGISTRATION: Final = UnaryMethod(
    f"{_REGISTRATION}/NotifyRegistrationStatus",
    pluginregistration.RegistrationStatus,
    pluginregistration.RegistrationStatusResponse,
)

PREPARE_V1: Final = UnaryMethod(
    f"{_DRA_V1}/NodePrepareResources",
    dra_v1.NodePrepareResourcesRequest,
    dra_v1.NodePrepareResourcesResponse,
)
UNPREPARE_V1: Final = UnaryMethod(
    f"{_DRA_V1}/NodeUnprepareResources",
    dra_v1.NodeUnprepareResourcesRequest,
    dra_v1.NodeUnprepareResourcesResponse,
)
PREPARE_V1BETA1: Final = UnaryMethod(
    f"{_DRA_V1BETA1}/NodePrepareResources",
    dra_v1beta1.NodePrepareResourcesRequest,
    dra_v1beta1.NodePrepareResourcesResponse,
)
UNPREPARE_V1BETA1: Final = UnaryMethod(
    f"{_DRA_V1BETA1}/NodeUnprepareResources",
    dra_v1beta1.NodeUnprepareResourcesRequest,
    dra_v1beta1.NodeUnprepareResourcesResponse,
)

WATCH_V1: Final = StreamMethod(
    "/v1.DRAResourceHealth/NodeWatchResources",
    health_v1.NodeWatchResourcesRequest,
    health_v1.NodeWatchResourcesResponse,
)
WATCH_V1ALPHA1: Final = StreamMethod(
    "/v1alpha1.DRAResourceHealth/NodeWatchResources",
    health_v1alpha1.NodeWatchResourcesRequest,
    health_v1alpha1.NodeWatchResourcesResponse,
)

CHECK_HEALTH: Final = UnaryMethod(
    "/grpc.health.v1.Health/Check",
    grpc_health_v1.HealthCheckRequest,
    grpc_health_v1.HealthCheckResponse,
)
