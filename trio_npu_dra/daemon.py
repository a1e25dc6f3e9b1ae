"""The nursery: every task of the daemon that outlives a call is started here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial

import trio

from trio_npu_dra.boot import SteadyClock
from trio_npu_dra.claims.cdi import CdiFolder, Libraries
from trio_npu_dra.claims.forgotten import forget_gone_claims
from trio_npu_dra.claims.library_hook import PROGRAM, LibraryHook, installed_hook
from trio_npu_dra.claims.repair import keep_cdi_files
from trio_npu_dra.claims.reserved import NoticingReader
from trio_npu_dra.claims.service import NodeClaims
from trio_npu_dra.claims.share_flag import ShareFlagStep
from trio_npu_dra.claims.steps import Step
from trio_npu_dra.claims.vnpu_step import VnpuStep
from trio_npu_dra.control.server import Control, serve_control
from trio_npu_dra.holds.ledger import Ledger
from trio_npu_dra.holds.shared_claim import SharedClaim
from trio_npu_dra.kube.client import KubeClient, open_client
from trio_npu_dra.kube.credentials import load_credentials
from trio_npu_dra.kubelet.device_health import Devices
from trio_npu_dra.kubelet.device_plugin.pod_resources import list_pod_resources
from trio_npu_dra.kubelet.device_plugin.registration import serve_resource
from trio_npu_dra.kubelet.endpoints import KUBELET_SOCKET, Endpoints
from trio_npu_dra.kubelet.plugin import serve_kubelet
from trio_npu_dra.kubelet.probes import Probes, serve_probes
from trio_npu_dra.kubelet.registration import NOT_REGISTERED, RegistrationStatus
from trio_npu_dra.mindcluster.service import tell_mindcluster
from trio_npu_dra.mindcluster.volcano import VolcanosChoices
from trio_npu_dra.npu.ascend_driver import load_library
from trio_npu_dra.npu.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.npu.fault_memory import NodeFaults
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import EMPTY_BOARD, Board
from trio_npu_dra.npu.occupancy import is_any_occupied
from trio_npu_dra.npu.offers import Cutting, Offer
from trio_npu_dra.npu.partition import Readings
from trio_npu_dra.npu.share_flag import NodeShareFlags
from trio_npu_dra.npu.subscription import WatchStatus
from trio_npu_dra.npu.vnpus import Vnpus
from trio_npu_dra.npu.watcher import watch_board
from trio_npu_dra.observable import Observable, derive
from trio_npu_dra.observe.metrics import Metrics
from trio_npu_dra.observe.npu_readings import NpuReadings
from trio_npu_dra.observe.pages import serve_pages
from trio_npu_dra.observe.self_check import SelfCheck
from trio_npu_dra.observe.signals import receive_signals
from trio_npu_dra.observe.state import NodeState
from trio_npu_dra.report.device_health import device_health
from trio_npu_dra.report.events import tell_events
from trio_npu_dra.resources.cdi_file import devices_before
from trio_npu_dra.resources.division import pool_offers
from trio_npu_dra.resources.pods import PodList
from trio_npu_dra.resources.selection import Selection
from trio_npu_dra.resources.service import Node, serve_resources
from trio_npu_dra.resources.state import ResourcesState
from trio_npu_dra.rpc import Bridge, open_bridge
from trio_npu_dra.settings import Settings
from trio_npu_dra.slices.build import build_pool
from trio_npu_dra.slices.features import ServerFeatures, follow_features
from trio_npu_dra.slices.pool import PoolContent
from trio_npu_dra.slices.publisher import PublisherStatus, publish
from trio_npu_dra.slices.publisher_lock import publisher_lock
from trio_npu_dra.slices.taints import TaintPolicy

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
    node = _Node(settings)
    async with (
        open_client(load_credentials(settings.kubeconfig)) as kube,
        open_worker() as worker,
        open_bridge() as bridge,
        trio.open_nursery() as support,
    ):
        stop = trio.Event()
        await support.start(receive_signals, stop)
        await node.answer_probes(support, bridge, worker)
        async with trio.open_nursery() as service:
            claims, cdi = await node.keep_claims(service, kube, worker)
            await support.start(serve_control, node.control(worker), node.endpoints)
            service.start_soon(node.follow_chips, kube, worker, bridge, cdi)
            await serve_kubelet(
                bridge,
                claims,
                node.device_health,
                node.registration,
                endpoints=node.endpoints,
                stop=stop,
                grace_seconds=GRACE_SECONDS,
                task_status=task_status,
            )
            service.cancel_scope.cancel()
        support.cancel_scope.cancel()


class _Node:
    """What several tasks of the daemon share: what rooms know of the node, and tell each other.

    Each `Observable` is set by one room. What has one user is made beside it, in a method.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.started_at = time.time()
        self.metrics = Metrics()
        self.host = Host(
            host_root=settings.host_root,
            dev_root=settings.dev_root,
            sysfs_root=settings.sysfs_root,
            extra_mounts=settings.extra_mounts,
        )
        self.dcmi = load_library(self.host, self.metrics.dcmi_called)
        self.policy = TaintPolicy.parse(settings.taint_effect, domain=settings.driver_name)
        self.selection = Selection.parse(
            settings.device_plugin, shares=settings.device_plugin_shares
        )
        self.endpoints = Endpoints(
            driver_name=settings.driver_name,
            plugin_directory=settings.plugin_directory,
            registrar_directory=settings.kubelet_registrar_directory_path,
            pod_uid=settings.pod_uid,
        )
        clock = SteadyClock()
        self.faults = NodeFaults(settings.plugin_directory, clock=clock, boot=clock.boot)
        self.ledger = Ledger(settings.plugin_directory)
        # npu
        self.board: Observable[Board] = Observable(EMPTY_BOARD)
        self.watch = Observable(WatchStatus())
        self.splits = Readings()
        self.cutting = Observable(Cutting(is_on=settings.partitioning == "dynamic"))
        # claims
        self.shared: Observable[Mapping[str, SharedClaim]] = Observable({})
        self.shared_for_claims: Observable[AbstractSet[str]] = Observable(frozenset())
        # holds, report and slices
        self.offers: Observable[tuple[Board, tuple[Offer, ...]]] = Observable((EMPTY_BOARD, ()))
        self.device_health: Observable[Devices] = Observable(())
        self.features: Observable[ServerFeatures | None] = Observable(None)
        self.pool = Observable(PoolContent())
        self.publisher = Observable(PublisherStatus())
        self.node_uid: Observable[str] = Observable("")
        # kubelet and resources
        self.resources = ResourcesState()
        self.registration: Observable[RegistrationStatus] = Observable(NOT_REGISTERED)

    # --- probes and people -----------------------------------------------------------------------

    async def answer_probes(
        self, support: trio.Nursery, bridge: Bridge, worker: DcmiWorker
    ) -> None:
        """Start what answers the kubelet's probes and Prometheus."""
        self_check = SelfCheck(
            bridge=bridge,
            endpoints=self.endpoints,
            registration=self.registration,
            publisher=self.publisher,
            watch=self.watch if self.dcmi is not None else None,
            claims=self.ledger.problem,
        )
        probes = Probes(live=self_check.live, ready=self_check.ready)
        support.start_soon(self_check.run)
        if self.settings.http_port >= 0:
            await self._answer_http(support, worker, probes)
        if self.settings.healthcheck_port >= 0:
            await support.start(serve_probes, bridge, self.settings.healthcheck_port, probes)

    async def _answer_http(self, support: trio.Nursery, worker: DcmiWorker, probes: Probes) -> None:
        readings = NpuReadings(worker, self.dcmi if self.settings.npu_metrics else None, self.board)
        self.metrics.registry.register(
            NodeState(
                board=self.board,
                watch=self.watch,
                features=self.features,
                publisher=self.publisher,
                registration=self.registration,
                holds=self.ledger.holds,
                written_off=lambda: worker.written_off,
                readings=readings,
            )
        )
        serve = partial(serve_pages, port=self.settings.http_port)
        await support.start(serve, self.metrics.registry, readings.refresh, probes)

    def control(self, worker: DcmiWorker) -> Control:
        """What `npu-dra health` asks."""
        return Control(
            board=self.board,
            watch=self.watch,
            features=self.features,
            worker=worker,
            faults=self.faults,
            holds=self.ledger.holds,
            cutting=self.cutting,
            resources=self.resources,
        )

    # --- claims ----------------------------------------------------------------------------------

    async def keep_claims(
        self, service: trio.Nursery, kube: KubeClient, worker: DcmiWorker
    ) -> tuple[NodeClaims, CdiFolder]:
        """Start what repairs claims; what prepares them, for the kubelet to call, and CDI files."""
        cdi = CdiFolder(
            root=self.settings.cdi_root,
            driver_name=self.settings.driver_name,
            host=self.host,
            libraries=Libraries(
                path=self.settings.container_library_path,
                usual=self.settings.container_libraries,
                hook=self._library_hook(),
            ),
        )
        reader = NoticingReader(
            kube,
            self.ledger,
            self.shared,
            driver_name=self.settings.driver_name,
            pool_name=self.settings.node_name,
        )
        steps = self._steps(worker, cdi)
        claims = NodeClaims(
            reader=reader,
            board=self.board,
            host=self.host,
            ledger=self.ledger,
            cdi=cdi,
            steps=steps,
            driver_name=self.settings.driver_name,
            pool_name=self.settings.node_name,
            cutting=self.cutting,
            on_call=self.metrics.call_answered,
        )
        await service.start(keep_cdi_files, self.ledger, cdi, steps, self.board)
        is_busy = partial(is_any_occupied, worker, self.dcmi, self.board)
        service.start_soon(forget_gone_claims, self.ledger, claims, reader, is_busy)
        return claims, cdi

    def _steps(self, worker: DcmiWorker, cdi: CdiFolder) -> tuple[Step, ...]:
        """What may have to be done to the chips before a claim's containers start."""
        vnpus = Vnpus(worker, self.dcmi, self.board, splits=self.splits, cutting=self.cutting)
        return (
            VnpuStep(ledger=self.ledger, cdi=cdi, vnpus=vnpus, host=self.host),
            self._share_flags(worker, cdi),
        )

    def _share_flags(self, worker: DcmiWorker, cdi: CdiFolder) -> ShareFlagStep:
        flags = NodeShareFlags(worker, self.dcmi, self.splits) if self.dcmi is not None else None
        return ShareFlagStep(self.ledger, cdi, self.board, flags, self.shared_for_claims)

    def _library_hook(self) -> LibraryHook | None:
        """What makes containers find libraries; only the image has it, and claims may want it."""
        if self.settings.container_libraries != "ldcache" and not PROGRAM.exists():
            return None
        return installed_hook(self.settings.cdi_root, self.settings.driver_name)

    # --- chips, and who hears of them ------------------------------------------------------------

    async def follow_chips(
        self, kube: KubeClient, worker: DcmiWorker, bridge: Bridge, cdi: CdiFolder
    ) -> None:
        """Publish what there is, once chips and, with resources, what pods have are known."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_features, kube)
            await self._watch(nursery, worker)
            self.resources.leaving.set(devices_before(cdi))
            nursery.start_soon(self._serve_resources, kube, worker, bridge, cdi)
            sources = self.board, self.ledger.holds, self.cutting, self.resources.leaving
            await nursery.start(derive, self.offers, self._offered, *sources)
            await nursery.start(derive, self.device_health, self._device_health, self.offers)
            await self.features.wait_until(lambda features: features is not None)
            await nursery.start(
                derive, self.pool, self._pool, self.offers, self.features, self.shared_for_claims
            )
            with trio.move_on_after(REGISTRATION_SECONDS):
                await self.registration.wait_until(lambda status: status.registered)
            async with publisher_lock(self.settings.plugin_directory, self.publisher):
                if self.selection:
                    await self.resources.pods_known.wait_until(bool)
                nursery.start_soon(self._tell_events, kube)
                if self.settings.mindcluster_compat:
                    name, devices = self.settings.node_name, self.resources.devices
                    nursery.start_soon(tell_mindcluster, kube, devices, self.ledger.holds, name)
                await publish(
                    kube,
                    node_name=self.settings.node_name,
                    driver_name=self.settings.driver_name,
                    pool=self.pool,
                    status=self.publisher,
                    node_uid=self.node_uid,
                    on_event=self.metrics.published,
                )

    async def _watch(self, nursery: trio.Nursery, worker: DcmiWorker) -> None:
        if self.dcmi is None:
            return
        watch = partial(
            watch_board,
            board=self.board,
            faults=self.faults,
            status=self.watch,
            interval_seconds=self.settings.health_poll_interval,
            known=Board(chips=self.ledger.remembered_chips()),
            splits=self.splits,
            on_event=self.metrics.event_heard,
        )
        await nursery.start(watch, worker, self.dcmi, self.host)

    async def _follow_features(self, kube: KubeClient) -> None:
        await follow_features(
            kube,
            node_name=self.settings.node_name,
            driver_name=self.settings.driver_name,
            features=self.features,
            status=self.publisher,
        )

    async def _tell_events(self, kube: KubeClient) -> None:
        await tell_events(
            kube,
            self.board,
            self.ledger.holds,
            self.shared,
            node_name=self.settings.node_name,
            node_uid=self.node_uid,
            component=self.settings.driver_name,
            since=self.started_at,
        )

    def _offered(self) -> tuple[Board, tuple[Offer, ...]]:
        board, holds, cutting = self.board.value, self.ledger.holds.value, self.cutting.value
        leaving = self.resources.leaving.value
        return board, pool_offers(board, holds, self.selection, leaving=leaving, cutting=cutting)

    async def _serve_resources(
        self, kube: KubeClient, worker: DcmiWorker, bridge: Bridge, cdi: CdiFolder
    ) -> None:
        settings = self.settings
        volcano = VolcanosChoices(kube, self.board, settings.node_name)
        pods = settings.kubelet_pod_resources_directory_path / KUBELET_SOCKET
        node = Node(
            selection=self.selection,
            board=self.board,
            ledger=self.ledger,
            cdi=cdi,
            is_busy=partial(is_any_occupied, worker, self.dcmi, self.board),
            pods=PodList(read=partial(list_pod_resources, bridge, pods), own_pod=settings.pod_name),
            serve=partial(
                serve_resource,
                bridge,
                folder=settings.kubelet_device_plugins_directory_path,
                driver_name=settings.driver_name,
            ),
            flags=self._share_flags(worker, cdi),
            state=self.resources,
            chooser=volcano if settings.mindcluster_compat else None,
        )
        await serve_resources(node)

    def _device_health(self) -> Devices:
        _, offers = self.offers.value
        return device_health(offers, self.settings.node_name)

    def _pool(self) -> PoolContent:
        (board, offers), features = self.offers.value, self.features.value
        assert features is not None  # nothing is published before the API server was asked
        pool = build_pool(
            offers,
            board,
            self.policy,
            features,
            shares=self.settings.shares,
            shared_for_claims=self.shared_for_claims.value,
        )
        # Before our first pool an older instance publishes, or there was nothing to be late with.
        is_late = self.publisher.value.published and pool != self.pool.value
        self.metrics.latency.pool_made(board, is_late=is_late)
        return pool
