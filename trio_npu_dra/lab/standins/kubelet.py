"""A kubelet as a DRA driver sees it: it finds the registration socket, registers, calls, watches.

It waits, checks and gives up as the kubelet of 1.36 does. GetInfo has a second, and a failed
registration is retried after half a second and longer. All further calls and the health stream go
over one connection; each call has 45 s. An answer that lacks one of the claims, or has another one,
is refused as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import trio

from trio_npu_dra.kit.base.errors import DriverError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.base.pace import Backoff
from trio_npu_dra.kit.grpc import Channel, RpcError, methods, open_channel
from trio_npu_dra.kit.grpc._generated import v1 as health_v1
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.grpc._generated.pluginregistration import (
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
)

GET_INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
CALL_SECONDS = 45.0
LOOK_SECONDS = 0.02
"""Pause between two looks for the registration socket; the real kubelet has inotify."""
REGISTER_AGAIN_SECONDS = 0.5
"""Pause before the second try; doubled for each further one."""
REGISTER_AGAIN_LIMIT = 122.0
WATCH_AGAIN_SECONDS = 5.0

Health: TypeAlias = Mapping[tuple[str, str], health_v1.DeviceHealth]
"""Device health by pool and device."""


class ContractBroken(DriverError):
    """The driver did something that the kubelet refuses."""


@dataclass(frozen=True, slots=True)
class KubeletVersion:
    """The services that a version of the kubelet knows.

    Attributes:
        dra: The DRAPlugin services.
        health: The health service that it opens, on every plugin; empty if it has none.
    """

    dra: tuple[str, ...]
    health: str


KUBELET_1_33 = KubeletVersion(("v1beta1.DRAPlugin",), "")
KUBELET_1_36 = KubeletVersion(("v1.DRAPlugin", "v1beta1.DRAPlugin"), "v1alpha1")
KUBELET_1_37 = KubeletVersion(("v1.DRAPlugin", "v1beta1.DRAPlugin"), "v1")


class Kubelet:
    """A kubelet that has registered one driver; made by `open_kubelet`.

    Attributes:
        info: What the driver says about itself.
        service: The DRAPlugin service in use.
        health: The last complete list; empty while there is no stream.
    """

    def __init__(
        self, channel: Channel, info: PluginInfo, service: str, call_seconds: float
    ) -> None:
        self._channel = channel
        self._call_seconds = call_seconds
        self.info = info
        self.service = service
        self.health: Observable[Health] = Observable({})

    async def prepare(
        self, claims: Sequence[v1.Claim]
    ) -> dict[str, v1.NodePrepareResourceResponse]:
        """Let the driver prepare the claims of one pod.

        Returns:
            The driver's answer for each claim, by UID; it may have errors.

        Raises:
            ContractBroken: The answer is not for exactly these claims.
            RpcError: The call as a whole failed.
        """
        request = v1.NodePrepareResourcesRequest(claims=list(claims))
        method = (
            methods.NODE_PREPARE_RESOURCES_V1
            if self.service == "v1.DRAPlugin"
            else methods.NODE_PREPARE_RESOURCES_V1BETA1
        )
        reply = await self._channel.unary(method, request, timeout_seconds=self._call_seconds)
        _check_complete(claims, reply.claims)
        return reply.claims

    async def unprepare(self, claims: Sequence[v1.Claim]) -> dict[str, str]:
        """Let the driver unprepare claims.

        Returns:
            The driver's error for each claim, by UID; empty on success.

        Raises:
            ContractBroken: The answer is not for exactly these claims.
            RpcError: The call as a whole failed.
        """
        request = v1.NodeUnprepareResourcesRequest(claims=list(claims))
        method = (
            methods.NODE_UNPREPARE_RESOURCES_V1
            if self.service == "v1.DRAPlugin"
            else methods.NODE_UNPREPARE_RESOURCES_V1BETA1
        )
        reply = await self._channel.unary(method, request, timeout_seconds=self._call_seconds)
        _check_complete(claims, reply.claims)
        return {uid: answer.error for uid, answer in reply.claims.items()}

    async def watch_health(self, version: str) -> None:
        """Keep `health` up to date over one stream after another, until cancelled."""
        method = (
            methods.NODE_WATCH_RESOURCES_V1
            if version == "v1"
            else methods.NODE_WATCH_RESOURCES_V1ALPHA1
        )
        while True:
            try:
                async with self._channel.stream(method, method.request()) as replies:
                    async for reply in replies:
                        self.health.set(_by_device(reply))
            except RpcError:
                pass  # the real kubelet also just tries again
            self.health.set({})
            await trio.sleep(WATCH_AGAIN_SECONDS)


@asynccontextmanager
async def open_kubelet(
    registration_socket: Path,
    *,
    version: KubeletVersion = KUBELET_1_36,
    call_seconds: float = CALL_SECONDS,
) -> AsyncIterator[Kubelet]:
    """Wait for a driver's registration socket, register the driver and watch its health.

    Args:
        registration_socket: The driver's registration socket.
        version: The kubelet's version.
        call_seconds: How long it waits for an answer of the driver.

    Raises:
        ContractBroken: The driver cannot be registered; it has got the reason.
    """
    info, service = await _register_patiently(registration_socket, version)
    endpoint = Path(info.endpoint) if info.endpoint else registration_socket
    async with open_channel(endpoint) as channel, trio.open_nursery() as nursery:
        kubelet = Kubelet(channel, info, service, call_seconds)
        if version.health:
            nursery.start_soon(kubelet.watch_health, version.health)
        yield kubelet
        nursery.cancel_scope.cancel()


async def _register_patiently(
    registration_socket: Path, version: KubeletVersion
) -> tuple[PluginInfo, str]:
    backoff = Backoff(first=REGISTER_AGAIN_SECONDS, limit=REGISTER_AGAIN_LIMIT)
    while True:
        try:
            return await _register(registration_socket, version)
        except RpcError as error:
            await trio.sleep(backoff.failed(error))


async def _register(registration_socket: Path, version: KubeletVersion) -> tuple[PluginInfo, str]:
    while not await trio.Path(registration_socket).is_socket():  # noqa: ASYNC110 - a file is no Event
        await trio.sleep(LOOK_SECONDS)
    async with open_channel(registration_socket) as channel:
        info = await channel.unary(
            methods.GET_INFO, InfoRequest(), timeout_seconds=GET_INFO_SECONDS
        )
        service = next((name for name in info.supported_versions if name in version.dra), "")
        flaw = _flaw(info, service)
        await channel.unary(
            methods.NOTIFY_REGISTRATION_STATUS,
            RegistrationStatus(plugin_registered=not flaw, error=flaw),
            timeout_seconds=NOTIFY_SECONDS,
        )
    if flaw:
        raise ContractBroken(flaw)
    return info, service


def _flaw(info: PluginInfo, service: str) -> str:
    if info.type != "DRAPlugin" or not info.name:
        return f"type {info.type!r}, name {info.name!r}: not a named DRAPlugin"
    if not service:
        return f"none of the versions {info.supported_versions} is known"
    return ""


def _check_complete(claims: Iterable[v1.Claim], answered: Iterable[str]) -> None:
    asked, answers = {claim.uid for claim in claims}, set(answered)
    if asked != answers:
        raise ContractBroken(
            f"no answer for claims {sorted(asked - answers)}, "
            f"answers for unknown claims {sorted(answers - asked)}"
        )


def _by_device(reply: health_v1.NodeWatchResourcesResponse) -> Health:
    return {
        (entry.device.pool_name, entry.device.device_name): entry
        for entry in reply.devices
        if entry.device is not None
    }
