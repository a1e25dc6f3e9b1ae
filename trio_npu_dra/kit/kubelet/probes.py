"""What probes of our pod ask, and the TCP port on which grpc.health.v1 answers them.

Part of being alive is that both our sockets answer, through the file system, just as the kubelet
would call them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import trio

from trio_npu_dra.kit.grpc import Bridge, RpcError, Status, methods
from trio_npu_dra.kit.grpc._generated.grpc.health import v1 as grpc_health
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1 as dra
from trio_npu_dra.kit.grpc._generated.pluginregistration import InfoRequest

READINESS = "readiness"
SERVICES = ("", "liveness", READINESS)
"""What a probe may ask for; the first two, as in other DRA drivers, mean the same."""

CALL_SECONDS = 0.9
"""For each of the two calls; a probe waits one second if not told otherwise."""

Probe: TypeAlias = Callable[[], Awaitable[tuple[str, ...]]]
"""Returns what is wrong, a line each; nothing when all is well."""

_STATUS = grpc_health.HealthCheckResponseServingStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What probes ask.

    Attributes:
        live: Whether the process does its work; else it is to be started anew.
        ready: Whether another instance may go, because this one does all that it does.
    """

    live: Probe
    ready: Probe


async def serve_probes(
    bridge: Bridge,
    port: int,
    probes: Probes,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer probes by grpc.health.v1 until cancelled; started with the port.

    Args:
        bridge: An open bridge.
        port: 0 lets the system choose.
        probes: Asked for each call.
        task_status: Told the port.

    Raises:
        ConfigError: The port cannot be had.
    """

    async def check(request: grpc_health.HealthCheckRequest) -> grpc_health.HealthCheckResponse:
        if request.service not in SERVICES:
            raise RpcError(Status.NOT_FOUND, f"unknown service {request.service!r}")
        probe = probes.ready if request.service == READINESS else probes.live
        return grpc_health.HealthCheckResponse(
            status=_STATUS.NOT_SERVING if await probe() else _STATUS.SERVING
        )

    await bridge.serve_tcp(port, [methods.CHECK_HEALTH.handled_by(check)], task_status=task_status)


async def silent_sockets(bridge: Bridge, *, service: Path, registration: Path) -> tuple[str, ...]:
    """Call both sockets at once (an empty prepare on the service); return those that fail."""
    silent: list[str] = []

    async def ask_registration() -> None:
        async with bridge.dial(registration) as channel:
            await channel.unary(methods.GET_INFO, InfoRequest(), timeout_seconds=CALL_SECONDS)

    async def ask_service() -> None:
        async with bridge.dial(service) as channel:
            await channel.unary(
                methods.PREPARE_V1,
                dra.NodePrepareResourcesRequest(),
                timeout_seconds=CALL_SECONDS,
            )

    async def note(name: str, ask: Callable[[], Awaitable[None]]) -> None:
        error = await _failure(ask)
        if error is not None and error.status is Status.UNAVAILABLE:
            error = await _failure(ask)  # beside a flood, our connection may have made room
        if error is not None:
            silent.append(f"the {name} socket does not answer: {error}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(note, "service", ask_service)
        nursery.start_soon(note, "registration", ask_registration)
    return tuple(silent)


async def _failure(ask: Callable[[], Awaitable[None]]) -> RpcError | None:
    """How a call failed; None if it did not."""
    try:
        await ask()
    except RpcError as error:
        return error
    return None
