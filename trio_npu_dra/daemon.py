"""The nursery: every task of the daemon that outlives a call is started here."""

from __future__ import annotations

from functools import partial

import trio

from trio_npu_dra import crashpoints
from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.claims.prepare import NodeClaims
from trio_npu_dra.claims.records import Records
from trio_npu_dra.claims.repair import forget_gone_claims, keep_cdi_files
from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.kube.client import KubeClient, open_client
from trio_npu_dra.kube.credentials import load_credentials
from trio_npu_dra.kube.objects import Device
from trio_npu_dra.kubelet.device_health import Devices
from trio_npu_dra.kubelet.plugin import Endpoints, serve_kubelet
from trio_npu_dra.kubelet.registration import NOT_REGISTERED
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.npu.driver import load_driver
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import EMPTY_BOARD, Board
from trio_npu_dra.npu.occupancy import is_any_occupied
from trio_npu_dra.npu.watcher import watch_board
from trio_npu_dra.observable import Observable, derive
from trio_npu_dra.observe.signals import receive_signals
from trio_npu_dra.report.device_health import device_health
from trio_npu_dra.rpc import open_bridge
from trio_npu_dra.settings import Settings
from trio_npu_dra.slices.build import build_devices
from trio_npu_dra.slices.publisher import PublisherStatus, publish
from trio_npu_dra.slices.turn import turn_to_publish

GRACE_SECONDS = 20.0
"""How long a stop waits for the kubelet's calls in flight; the pod is killed after 30 s."""


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
    host = Host(
        host_root=settings.host_root, dev_root=settings.dev_root, sysfs_root=settings.sysfs_root
    )
    dcmi = load_driver(host)
    reached(Point.START_LIBRARY_LOADED)
    board, health = Observable(EMPTY_BOARD), Observable[Devices](())
    records = Records(settings.plugin_directory)
    cdi = CdiFolder(
        root=settings.cdi_root,
        driver_name=settings.driver_name,
        host=host,
        library_path=settings.container_library_path,
    )
    endpoints = Endpoints.of(
        settings.driver_name,
        plugins_directory=settings.kubelet_plugins_directory_path,
        registrar_directory=settings.kubelet_registrar_directory_path,
        pod_uid=settings.pod_uid,
        health_check_port=settings.healthcheck_port,
    )
    credentials = load_credentials(settings.kubeconfig)
    async with open_client(credentials) as kube, open_worker() as worker, open_bridge() as bridge:
        claims = NodeClaims(
            reader=kube,
            board=board,
            host=host,
            records=records,
            cdi=cdi,
            driver_name=settings.driver_name,
            pool_name=settings.node_name,
        )
        is_busy = partial(is_any_occupied, worker, dcmi, board)
        stop = trio.Event()
        async with trio.open_nursery() as support:
            await support.start(receive_signals, stop)
            async with trio.open_nursery() as service:
                await service.start(keep_cdi_files, records, cdi)
                service.start_soon(forget_gone_claims, records, claims, kube, is_busy)
                service.start_soon(_follow_npus, settings, worker, dcmi, host, kube, board, health)
                await serve_kubelet(
                    bridge,
                    claims,
                    health,
                    Observable(NOT_REGISTERED),
                    endpoints=endpoints,
                    stop=stop,
                    grace_seconds=GRACE_SECONDS,
                    task_status=task_status,
                )
                service.cancel_scope.cancel()
            support.cancel_scope.cancel()


async def _follow_npus(  # noqa: PLR0917 - one nursery's worth of parts
    settings: Settings,
    worker: DcmiWorker,
    dcmi: Dcmi | None,
    host: Host,
    kube: KubeClient,
    board: Observable[Board],
    health: Observable[Devices],
) -> None:
    """Publish what the NPUs are, and how; nothing before the first look at them."""
    node, interval = settings.node_name, settings.health_poll_interval
    pool: Observable[tuple[Device, ...]] = Observable(())
    async with trio.open_nursery() as nursery:
        if dcmi is not None:
            look = partial(watch_board, interval_seconds=interval)
            await nursery.start(look, worker, dcmi, host, board)
        await nursery.start(derive, board, pool, build_devices)
        await nursery.start(derive, board, health, partial(device_health, pool=node))
        async with turn_to_publish(settings.plugin_directory):
            await publish(
                kube,
                node_name=node,
                driver_name=settings.driver_name,
                pool=pool,
                status=Observable(PublisherStatus()),
            )
