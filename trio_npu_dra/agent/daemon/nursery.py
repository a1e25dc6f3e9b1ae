"""The nursery: every task of the daemon that outlives a call is started here or below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import trio

from trio_npu_dra.agent.claims.contention import ContentionObserver
from trio_npu_dra.agent.claims.metadata import DeviceMetadata
from trio_npu_dra.agent.claims.orphans import OrphanedClaims
from trio_npu_dra.agent.claims.planner import ClaimPlanner
from trio_npu_dra.agent.claims.repair import keep_cdi_files
from trio_npu_dra.agent.claims.service import NodeClaims
from trio_npu_dra.agent.claims.steps import Step
from trio_npu_dra.agent.claims.vnpu_step import VnpuStep
from trio_npu_dra.agent.control.answers import Control, serve_control
from trio_npu_dra.agent.daemon.node import NodeContext
from trio_npu_dra.agent.daemon.ownership import (
    HAND_OVER_SECONDS,
    OwnersCalls,
    hand_over,
    own,
    stop_for_older_release,
)
from trio_npu_dra.agent.daemon.publishing import publish_chips
from trio_npu_dra.agent.devices.build import offer_attributes
from trio_npu_dra.agent.devices.npu_status import network_on_the_wire
from trio_npu_dra.agent.handout.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.handout.library_hook import PROGRAM, installed_hook
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.owner import Life
from trio_npu_dra.agent.observe.pages import daemon_pages
from trio_npu_dra.agent.observe.self_check import SelfCheck
from trio_npu_dra.agent.observe.state import NodeState, NpuReadings
from trio_npu_dra.agent.report.claim_status import note_status
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.ascend.ascend_driver import wait_replaced
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.occupancy import is_any_occupied
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.ascend.share_flag import ShareFlags
from trio_npu_dra.ascend.vnpus import Vnpus
from trio_npu_dra.kit.api.claims import ObservedReader
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import load_credentials
from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.base.device_metadata import metadata_files
from trio_npu_dra.kit.base.signals import end_at_last, receive_signals
from trio_npu_dra.kit.http import serve_http
from trio_npu_dra.kit.kubelet.plugin import serve_kubelet
from trio_npu_dra.kit.kubelet.probes import Probes, serve_probes
from trio_npu_dra.revision import USER_AGENT

GRACE_SECONDS = 20.0
"""How long a stop waits for the kubelet's calls in flight; the pod is killed after 30 s."""

END_SECONDS = GRACE_SECONDS + HAND_OVER_SECONDS + 4
"""When a stop cuts off what still waits for a disk or a library; then the log is written."""


async def run(
    settings: Settings, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve this node until SIGTERM, SIGINT, another Ascend driver's library, or cancelled.

    Beside another instance it waits until that one has ended.

    Started once the kubelet can find us.

    The kubelet is served while chips boot or the API server is away, so that pods can end.
    ResourceSlices stay at the end: the kubelet removes them after 30 s, and a quick restart finds
    them as they should be.

    Raises:
        ConfigError: A setting, the kubeconfig or a socket's path is wrong.
        StorageError: A socket cannot be made.
    """
    disk.use_threads()
    node = NodeContext(settings)
    async with (
        open_client(load_credentials(settings.kubeconfig), user_agent=USER_AGENT) as kube,
        open_worker() as worker,
        trio.open_nursery() as support,
    ):
        stop = trio.Event()
        await support.start(receive_signals, stop)
        support.start_soon(end_at_last, stop, END_SECONDS)
        support.start_soon(_stop_for_new_library, node, stop)
        await _answer_probes(node, support, worker)
        await disk.run(node.endpoints.make_folder)
        await support.start(serve_control, _control(node, worker), node.endpoints)
        try:
            async with trio.open_nursery() as service:
                calls, end = OwnersCalls(), trio.Event()
                service.start_soon(hand_over, node, stop, end)
                work = partial(_own_and_work, calls=calls, stop=stop)
                service.start_soon(work, node, service, kube, worker)
                life = await node.owner.life.wait_until(lambda life: life is not Life.WAITS)
                if life is not Life.DRAINS:
                    await serve_kubelet(
                        calls,
                        node.device_health,
                        node.registration,
                        endpoints=node.endpoints,
                        stop=end,
                        grace_seconds=GRACE_SECONDS,
                        task_status=task_status,
                    )
                service.cancel_scope.cancel()
        finally:
            node.owner.free()  # not later: a thread that hangs in the library keeps this process
        support.cancel_scope.cancel()


async def _own_and_work(
    node: NodeContext,
    service: trio.Nursery,
    kube: KubeClient,
    worker: DcmiWorker,
    *,
    calls: OwnersCalls,
    stop: trio.Event,
) -> None:
    """Wait until this instance owns the node; then read its state, answer calls, and publish."""
    await own(node, kube, worker)
    await disk.run(node.faults.load)
    cdi = _cdi_folder(node)
    flags = _share_flags(node, worker, cdi)
    steps = (_partitions(node, worker, cdi), flags)
    calls.open(await _keep_claims(node, service, kube, worker, cdi=cdi, steps=steps))
    if node.owner.life.value is not Life.DRAINS:
        node.owner.life.set(Life.OWNS)
        service.start_soon(stop_for_older_release, node, stop)
    await publish_chips(node, kube, worker, cdi=cdi, flags=flags)


async def _stop_for_new_library(node: NodeContext, stop: trio.Event) -> None:
    await wait_replaced(node.dcmi)
    stop.set()


async def _answer_probes(node: NodeContext, support: trio.Nursery, worker: DcmiWorker) -> None:
    """Start the pages and services for probes and Prometheus."""
    self_check = SelfCheck(
        endpoints=node.endpoints,
        life=node.owner.life,
        lacks=node.lacks,
        registration=node.registration,
        publisher=node.publisher,
        board=node.board,
        claims=node.ledger.problem,
        locks=node.owner.problem,
    )
    probes = Probes(live=self_check.live, ready=self_check.ready)
    if node.settings.http_port >= 0:
        readings = NpuReadings(worker, node.dcmi if node.settings.npu_metrics else None, node.board)
        node.metrics.registry.register(_node_state(node, worker, readings))
        pages = daemon_pages(node.metrics.registry, readings.refresh, probes)
        await support.start(partial(serve_http, pages, port=node.settings.http_port))
    if node.settings.healthcheck_port >= 0:
        await support.start(serve_probes, node.settings.healthcheck_port, probes)


def _node_state(node: NodeContext, worker: DcmiWorker, readings: NpuReadings) -> NodeState:
    return NodeState(
        life=node.owner.life,
        board=node.board,
        watch=node.watch,
        features=node.features,
        publisher=node.publisher,
        registration=node.registration,
        holds=node.ledger.holds,
        containers=node.containers,
        written_off=lambda: worker.written_off,
        readings=readings,
    )


def _control(node: NodeContext, worker: DcmiWorker) -> Control:
    """What answers `npu-dra health`."""
    return Control(
        life=node.owner.life,
        board=node.board,
        watch=node.watch,
        features=node.features,
        worker=worker,
        faults=node.faults,
        holds=node.ledger.holds,
        partitioning=node.partitioning,
        resources=node.resources,
        waiting=node.waiting,
    )


async def _keep_claims(
    node: NodeContext,
    service: trio.Nursery,
    kube: KubeClient,
    worker: DcmiWorker,
    *,
    cdi: CdiFolder,
    steps: Sequence[Step],
) -> NodeClaims:
    """Start the tasks that repair claims; return what prepares claims for the kubelet."""
    settings = node.settings
    contention = ContentionObserver(
        ledger=node.ledger,
        shared=node.shared,
        driver_name=settings.driver_name,
        pool_name=settings.node_name,
    )
    statuses = partial(note_status, reported=node.reported, driver_name=settings.driver_name)
    reader = ObservedReader(kube, (contention, *([statuses] if settings.claim_status else [])))
    is_busy = partial(is_any_occupied, worker, node.dcmi, node.board)
    forgotten = OrphanedClaims(node.ledger, reader, is_busy, driver_name=settings.driver_name)
    metadata = _metadata(node)
    planner = ClaimPlanner(
        reader=reader,
        board=node.board,
        host=node.host,
        ledger=node.ledger,
        cdi=cdi,
        driver_name=settings.driver_name,
        pool_name=settings.node_name,
        partitioning=node.partitioning,
        metadata=metadata,
    )
    claims = NodeClaims(planner, steps, on_call=node.answered, on_held=forgotten.hurry)
    await service.start(keep_cdi_files, node.ledger, cdi, steps, node.board, metadata)
    service.start_soon(forgotten.run)
    return claims


def _metadata(node: NodeContext) -> DeviceMetadata | None:
    if not node.settings.device_metadata:
        return None

    def attributes(offer: Offer, board: Board) -> Mapping[str, Any]:
        return offer_attributes(offer, board, node.shared_for_claims.value)

    return DeviceMetadata(
        driver_name=node.settings.driver_name,
        attributes=attributes,
        network=network_on_the_wire,
    )


def _partitions(node: NodeContext, worker: DcmiWorker, cdi: CdiFolder) -> VnpuStep:
    vnpus = Vnpus(
        worker, node.dcmi, node.board, division=node.division, partitioning=node.partitioning
    )
    return VnpuStep(ledger=node.ledger, cdi=cdi, vnpus=vnpus, host=node.host)


def _share_flags(node: NodeContext, worker: DcmiWorker, cdi: CdiFolder) -> ShareFlagStep:
    flags = ShareFlags(worker, node.dcmi, node.division)
    return ShareFlagStep(node.ledger, cdi, node.board, flags, node.shared_for_claims)


def _cdi_folder(node: NodeContext) -> CdiFolder:
    settings, hook = node.settings, None
    # Only the image has the hook's program; claims may want it whatever the flag says.
    if settings.container_libraries == "ldcache" or PROGRAM.exists():
        hook = installed_hook(settings.cdi_root, settings.driver_name)
    return CdiFolder(
        root=settings.cdi_root,
        driver_name=settings.driver_name,
        host=node.host,
        libraries=Libraries(
            path=settings.container_library_path, usual=settings.container_libraries, hook=hook
        ),
        metadata=metadata_files(settings.plugin_directory, settings.driver_name),
    )
