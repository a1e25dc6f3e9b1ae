"""The nursery: every task of the daemon that outlives a call is started here."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial

import trio

from trio_npu_dra import crashpoints
from trio_npu_dra.claims.forgotten import forget_gone_claims
from trio_npu_dra.claims.repair import keep_cdi_files
from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.kube.client import KubeClient, open_client
from trio_npu_dra.kubelet.health_check import Probes, serve_health_check
from trio_npu_dra.kubelet.plugin import serve_kubelet
from trio_npu_dra.npu.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.npu.occupancy import is_any_occupied
from trio_npu_dra.observable import derive
from trio_npu_dra.observe.control import serve_control
from trio_npu_dra.observe.signals import receive_signals
from trio_npu_dra.parts import Parts
from trio_npu_dra.report.device_health import device_health
from trio_npu_dra.report.events import tell_events
from trio_npu_dra.rpc import open_bridge
from trio_npu_dra.settings import Settings
from trio_npu_dra.slices.features import follow_features
from trio_npu_dra.slices.publisher import publish
from trio_npu_dra.slices.turn import turn_to_publish

GRACE_SECONDS = 20.0
"""How long a stop waits for the kubelet's calls in flight; the pod is killed after 30 s."""

REGISTRATION_SECONDS = 2.0
"""How long publishing waits for the kubelet, which retries a pod that came too early in minutes."""


async def run(
    settings: Settings, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve this node until SIGTERM, SIGINT or cancelled; started once the kubelet can find us.

    The kubelet is served while chips boot or the API server is away, so that pods can end.
    ResourceSlices stay at the end: the kubelet removes them after 30 s, and a quick restart finds
    them as they should be.

    Raises:
        ConfigError: A setting, the kubeconfig or a socket's path is wrong.
        LibraryMissing: The node has Ascend hardware and no libdcmi.so.
        StorageError: A socket cannot be made.
    """
    crashpoints.check()
    reached(Point.START_SETTINGS_READ)
    parts = Parts.of(settings)
    facts = parts.facts
    async with (
        open_client(parts.credentials) as kube,
        open_worker() as worker,
        open_bridge() as bridge,
    ):
        claims, health = parts.claims(kube), parts.health(bridge)
        probes = Probes(live=health.live, ready=health.ready)

        async def is_busy(nodes: Collection[str]) -> bool:
            return await is_any_occupied(worker, parts.dcmi, facts.board, parts.chips_at(nodes))

        stop = trio.Event()
        async with trio.open_nursery() as support:
            await support.start(receive_signals, stop)
            support.start_soon(health.run)
            if settings.http_port >= 0:
                await support.start(parts.pages(worker, probes))
            if settings.healthcheck_port >= 0:
                await support.start(serve_health_check, bridge, settings.healthcheck_port, probes)
            async with trio.open_nursery() as service:
                await service.start(keep_cdi_files, parts.ledger, parts.cdi)
                await support.start(serve_control, parts.control(worker), settings.control_socket)
                service.start_soon(forget_gone_claims, parts.ledger, claims, kube, is_busy)
                service.start_soon(_follow_npus, settings, parts, kube, worker)
                await serve_kubelet(
                    bridge,
                    claims,
                    facts.health,
                    facts.registration,
                    endpoints=parts.endpoints,
                    stop=stop,
                    grace_seconds=GRACE_SECONDS,
                    task_status=task_status,
                )
                service.cancel_scope.cancel()
            support.cancel_scope.cancel()


async def _follow_npus(
    settings: Settings, parts: Parts, kube: KubeClient, worker: DcmiWorker
) -> None:
    """Publish what the NPUs are, and how; nothing before the first look at them."""
    facts = parts.facts
    node, driver = settings.node_name, settings.driver_name
    tell = partial(
        tell_events, holders=parts.holders, node_name=node, component=driver, since=time.time()
    )
    async with trio.open_nursery() as nursery:
        learn = partial(follow_features, features=facts.features, status=facts.publisher)
        nursery.start_soon(partial(learn, kube, node_name=node, driver_name=driver))
        if parts.dcmi is not None:
            await nursery.start(parts.watcher(worker, parts.dcmi))
        health = partial(device_health, pool=node)
        await nursery.start(derive, facts.health, lambda: health(facts.board.value), facts.board)
        await facts.features.wait_until(lambda features: features is not None)
        await nursery.start(derive, facts.pool, parts.devices, facts.board, facts.features)
        with trio.move_on_after(REGISTRATION_SECONDS):
            await facts.registration.wait_until(lambda status: status.registered)
        async with turn_to_publish(settings.plugin_directory, facts.publisher):
            nursery.start_soon(tell, kube, facts.board)
            await publish(
                kube,
                node_name=node,
                driver_name=driver,
                pool=facts.pool,
                status=facts.publisher,
                told=parts.metrics.published,
            )
