"""Kubelets of several ages, and probes, at the sockets of one plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from dev.rig.waiting import until
from tests.claims.node import DRIVER, POOL, NodeOnDisk
from tests.kubelet.site import A_PREPARED, CLAIM_A, Site, prepared, running
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.grpc import RpcError, methods, open_channel
from trio_npu_dra.kit.grpc._generated.grpc.health.v1 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthCheckResponseServingStatus,
)
from trio_npu_dra.kit.kubelet.device_health import DeviceHealth
from trio_npu_dra.kit.kubelet.probes import Probes, serve_probes, silent_sockets
from trio_npu_dra.kit.kubelet.registration import RegistrationStatus
from trio_npu_dra.lab.standins.kubelet import (
    KUBELET_1_33,
    KUBELET_1_36,
    KUBELET_1_37,
    Health,
    KubeletVersion,
    open_kubelet,
)

SERVING = HealthCheckResponseServingStatus.SERVING
NOT_SERVING = HealthCheckResponseServingStatus.NOT_SERVING
Check = Callable[[HealthCheckRequest], Awaitable[HealthCheckResponse]]


@pytest.mark.parametrize(
    ("version", "service"),
    [
        (KUBELET_1_33, "v1beta1.DRAPlugin"),
        (KUBELET_1_36, "v1.DRAPlugin"),
        (KUBELET_1_37, "v1.DRAPlugin"),
    ],
    ids=["1.33", "1.36", "1.37"],
)
async def test_each_kubelet_finds_a_service_it_knows(
    node: NodeOnDisk, version: KubeletVersion, service: str
) -> None:
    """Kubelets of each age register the plugin, prepare and unprepare a claim."""
    async with (
        running(node) as site,
        open_kubelet(site.registration, version=version) as kubelet,
    ):
        assert (kubelet.info.name, kubelet.service) == (DRIVER, service)
        assert site.status.value == RegistrationStatus(registered=True)
        assert await prepared(kubelet, CLAIM_A) == A_PREPARED
        assert await kubelet.unprepare([CLAIM_A]) == {"uid-a": ""}


@pytest.mark.parametrize("version", [KUBELET_1_36, KUBELET_1_37], ids=["1.36", "1.37"])
async def test_health_reaches_the_kubelet_as_it_changes(
    node: NodeOnDisk, version: KubeletVersion
) -> None:
    """Both versions of the stream send the list when they open, and each change when it happens."""

    def says(state: HealthState, message: str, devices: Health) -> bool:
        entry = devices.get((POOL, "npu-2"))
        return entry is not None and (entry.health.name, entry.message) == (state.name, message)

    async with (
        running(node) as site,
        open_kubelet(site.registration, version=version) as kubelet,
    ):
        await kubelet.health.wait_until(partial(says, HealthState.HEALTHY, ""))
        unhealthy = HealthState.UNHEALTHY
        site.health.set((DeviceHealth(pool=POOL, device="npu-2", state=unhealthy, message="hot"),))
        await kubelet.health.wait_until(partial(says, unhealthy, "hot"))


@asynccontextmanager
async def probed(site: Site) -> AsyncIterator[Check]:
    """What a probe calls."""
    live = partial(silent_sockets, service=site.service, registration=site.registration)

    async def ready() -> tuple[str, ...]:
        return () if site.status.value.registered else ("not registered",)

    probes = Probes(live=live, ready=ready)
    port: int = await site.nursery.start(serve_probes, 0, probes)
    async with open_channel(("127.0.0.1", port)) as channel:
        yield partial(channel.unary, methods.CHECK_V1, timeout_seconds=5)


@pytest.mark.parametrize(("refused", "silent"), [(1, 0), (2, 1)])
async def test_a_probe_whose_connection_made_room_for_another_connects_again(
    node: NodeOnDisk, refused: int, silent: int
) -> None:
    """It connects again only once: a socket that keeps hanging up counts as silent."""
    async with running(node) as site:
        site.line.refused = refused
        found = await silent_sockets(service=site.line.path, registration=site.registration)
    assert len(found) == silent


@pytest.mark.parametrize("socket", ["service", "registration"])
async def test_a_probe_tells_whether_both_sockets_answer(node: NodeOnDisk, socket: str) -> None:
    """SERVING while both are there, NOT_SERVING once one is gone, NOT_FOUND for other services."""
    async with running(node) as site, probed(site) as check:
        assert (await check(HealthCheckRequest())).status == SERVING
        assert (await check(HealthCheckRequest(service="liveness"))).status == SERVING
        with pytest.raises(RpcError, match="NOT_FOUND"):
            await check(HealthCheckRequest(service="nobody"))
        stop = site.stop_service if socket == "service" else site.stop_registration
        stop.cancel()
        await until(lambda: not getattr(site, socket).exists())
        assert (await check(HealthCheckRequest())).status == NOT_SERVING


async def test_a_probe_tells_readiness_apart(node: NodeOnDisk) -> None:
    """Alive is not ready: `readiness` is the answer of its own probe."""
    ready = HealthCheckRequest(service="readiness")
    async with running(node) as site, probed(site) as check:
        assert (await check(ready)).status == NOT_SERVING
        assert (await check(HealthCheckRequest())).status == SERVING
        async with open_kubelet(site.registration):
            assert (await check(ready)).status == SERVING
