"""Kubelets of several ages, and probes, at the sockets of one plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import h2.events
import pytest

from dev.grpc.peer import Peer, connected, on_the_wire
from dev.rig.waiting import until
from tests.claims.node import DRIVER, POOL, NodeOnDisk
from tests.kubelet.site import A_PREPARED, CLAIM_A, Site, prepared, running
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.grpc import Status, methods
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
async def probed(site: Site) -> AsyncIterator[Peer]:
    """A probe that has connected."""
    live = partial(silent_sockets, service=site.service, registration=site.registration)

    async def ready() -> tuple[str, ...]:
        return () if site.status.value.registered else ("not registered",)

    probes = Probes(live=live, ready=ready)
    port: int = await site.nursery.start(serve_probes, 0, probes)
    async with connected(port) as probe:
        yield probe


def ask(probe: Peer, service: str) -> None:
    """Begin a call of the probe."""
    probe.call(methods.CHECK_V1.path, on_the_wire(HealthCheckRequest(service=service)))


async def answer(probe: Peer, service: str = "") -> HealthCheckResponseServingStatus:
    """The answer to a probe about a service."""
    ask(probe, service)
    reply = await probe.until(h2.events.DataReceived)
    assert reply.data is not None
    return HealthCheckResponse.parse(reply.data[5:]).status


@pytest.mark.parametrize("socket", ["service", "registration"])
async def test_a_probe_tells_whether_both_sockets_answer(node: NodeOnDisk, socket: str) -> None:
    """SERVING while both are there, NOT_SERVING once one is gone, NOT_FOUND for other services."""
    async with running(node) as site, probed(site) as probe:
        for service in ("", "liveness"):
            assert await answer(probe, service) == SERVING
            assert await probe.status() is Status.OK
        ask(probe, "nobody")
        assert await probe.status() is Status.NOT_FOUND
        stop = site.stop_service if socket == "service" else site.stop_registration
        stop.cancel()
        await until(lambda: not getattr(site, socket).exists())
        assert await answer(probe) == NOT_SERVING


async def test_a_probe_tells_readiness_apart(node: NodeOnDisk) -> None:
    """Alive is not ready: `readiness` is the answer of its own probe."""
    async with running(node) as site, probed(site) as probe:
        assert await answer(probe, "readiness") == NOT_SERVING
        assert await answer(probe) == SERVING
        async with open_kubelet(site.registration):
            assert await answer(probe, "readiness") == SERVING
