"""What probes of our pod ask, and the TCP port on which grpc.health.v1 answers them.

A live process answers on both its sockets, through the file system, just as the kubelet would call
them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import trio

from trio_npu_dra.kit.grpc import (
    RpcError,
    Status,
    UnaryMethod,
    listen_tcp,
    methods,
    open_channel,
    serve,
)
from trio_npu_dra.kit.grpc._generated.grpc.health import v1 as grpc_health

READINESS = "readiness"
SERVICES = ("", "liveness", READINESS)
"""What a probe may ask for; the first two, as in other DRA drivers, mean the same."""

CALL_SECONDS = 0.9
"""For each of the two calls; a probe waits one second by default."""

Probe: TypeAlias = Callable[[], Awaitable[tuple[str, ...]]]
"""Returns what is wrong, a line each; nothing when all is well."""

_STATUS = grpc_health.HealthCheckResponseServingStatus


@dataclass(frozen=True, slots=True)
class Probes:
    """What probes ask.

    Attributes:
        live: Whether the process does its work; if not, the kubelet restarts it.
        ready: Whether a rolling update may end another instance, because this one can replace it.
    """

    live: Probe
    ready: Probe


async def serve_probes(
    port: int,
    probes: Probes,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer probes by grpc.health.v1 until cancelled; started with the port, chosen if 0.

    Raises:
        ConfigError: The port cannot be used.
    """

    async def check(request: grpc_health.HealthCheckRequest) -> grpc_health.HealthCheckResponse:
        if request.service not in SERVICES:
            raise RpcError(Status.NOT_FOUND, f"unknown service {request.service!r}")
        probe = probes.ready if request.service == READINESS else probes.live
        return grpc_health.HealthCheckResponse(
            status=_STATUS.NOT_SERVING if await probe() else _STATUS.SERVING
        )

    listener = listen_tcp(port)
    task_status.started(listener.socket.getsockname()[1])
    await serve(listener, [methods.CHECK_V1.handled_by(check)])


async def silent_sockets(*, service: Path, registration: Path) -> tuple[str, ...]:
    """Call both sockets side by side (an empty prepare on the service); return those that fail."""
    silent: list[str] = []

    async def ask(name: str, socket: Path, method: UnaryMethod[Any, Any]) -> None:
        try:
            async with open_channel(socket) as channel:
                await channel.unary(method, method.request(), timeout_seconds=CALL_SECONDS)
        except RpcError as error:
            silent.append(f"the {name} socket does not answer: {error}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "service", service, methods.NODE_PREPARE_RESOURCES_V1)
        nursery.start_soon(ask, "registration", registration, methods.GET_INFO)
    return tuple(silent)
