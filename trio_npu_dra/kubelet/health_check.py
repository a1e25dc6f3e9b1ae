"""grpc.health.v1 on a TCP port, for the kubelet's grpc probes of our pod.

SERVING means what a probe is to find out: both our sockets answer, through the file system, just
as the kubelet would call them. To be ready, the kubelet must have registered us besides: a rolling
update ends the old instance as soon as the new one is ready.
"""

from __future__ import annotations

import logging
from pathlib import Path

import trio

from trio_npu_dra._generated.grpc.health import v1 as health
from trio_npu_dra._generated.k8s.io.kubelet.pkg.apis.dra import v1 as dra
from trio_npu_dra._generated.pluginregistration import InfoRequest
from trio_npu_dra.kubelet.registration import RegistrationStatus
from trio_npu_dra.observable import Observable
from trio_npu_dra.rpc import Bridge, RpcError, Status, methods

log = logging.getLogger(__name__)

READINESS = "readiness"
SERVICES = ("", "liveness", READINESS)
"""What a probe may ask for; the first two, as in other DRA drivers, are the sockets."""

CALL_SECONDS = 0.9
"""For each of the two calls; a probe waits one second if not told otherwise."""

_STATUS = health.HealthCheckResponseServingStatus


async def serve_health_check(
    bridge: Bridge,
    port: int,
    status: Observable[RegistrationStatus],
    *,
    service: Path,
    registration: Path,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer health checks until cancelled; started with the port.

    Args:
        bridge: An open bridge.
        port: 0 lets the system choose.
        status: What the kubelet decided of our registration.
        service: The service socket.
        registration: The registration socket.
        task_status: Told the port.

    Raises:
        ConfigError: The port cannot be had.
    """

    async def check(request: health.HealthCheckRequest) -> health.HealthCheckResponse:
        if request.service not in SERVICES:
            raise RpcError(Status.NOT_FOUND, f"unknown service {request.service!r}")
        serving = await both_answer(bridge, service=service, registration=registration)
        if request.service == READINESS:
            serving = serving and status.value.registered
        return health.HealthCheckResponse(
            status=_STATUS.SERVING if serving else _STATUS.NOT_SERVING
        )

    await bridge.serve_tcp(port, [methods.CHECK_HEALTH.handled_by(check)], task_status=task_status)


async def both_answer(bridge: Bridge, *, service: Path, registration: Path) -> bool:
    """Call both sockets side by side, the service with nothing to prepare."""
    answered = 0

    async def ask_registration() -> None:
        nonlocal answered
        async with bridge.dial(registration) as channel:
            await channel.unary(methods.GET_INFO, InfoRequest(), timeout_seconds=CALL_SECONDS)
        answered += 1

    async def ask_service() -> None:
        nonlocal answered
        async with bridge.dial(service) as channel:
            await channel.unary(
                methods.PREPARE_V1,
                dra.NodePrepareResourcesRequest(),
                timeout_seconds=CALL_SECONDS,
            )
        answered += 1

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_registration)
            nursery.start_soon(ask_service)
    except* RpcError as errors:
        log.warning("not serving: %s", "; ".join(str(error) for error in errors.exceptions))
    return answered == 2
