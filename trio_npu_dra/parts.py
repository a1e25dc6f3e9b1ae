"""What the daemon is made of: tools from the settings, and the facts that tasks tell each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.claims.reading import ClaimReader
from trio_npu_dra.claims.service import NodeClaims
from trio_npu_dra.crashpoints import Point, reached
from trio_npu_dra.holds.hold import HolderKind, holds_of
from trio_npu_dra.holds.ledger import Ledger
from trio_npu_dra.kube.credentials import Credentials, load_credentials
from trio_npu_dra.kube.objects import Device, ObjectReference, ResourceClaim
from trio_npu_dra.kubelet.device_health import Devices
from trio_npu_dra.kubelet.health_check import Probes
from trio_npu_dra.kubelet.plugin import Endpoints
from trio_npu_dra.kubelet.registration import NOT_REGISTERED, RegistrationStatus
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.driver import load_driver
from trio_npu_dra.npu.fault_memory import NodeFaults
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import EMPTY_BOARD, Board
from trio_npu_dra.npu.watcher import WatchStatus, watch_board
from trio_npu_dra.observable import Observable
from trio_npu_dra.observe.control import Control
from trio_npu_dra.observe.metrics import Metrics
from trio_npu_dra.observe.npu_readings import NpuReadings
from trio_npu_dra.observe.pages import serve_pages
from trio_npu_dra.observe.probes import Health
from trio_npu_dra.observe.state import NodeState
from trio_npu_dra.rpc import Bridge
from trio_npu_dra.settings import Settings
from trio_npu_dra.slices.build import build_devices
from trio_npu_dra.slices.features import ServerFeatures
from trio_npu_dra.slices.publisher import PublisherStatus
from trio_npu_dra.slices.taints import TaintPolicy


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known now; each has one task that sets it.

    Attributes:
        board: The NPUs; empty until they were looked at.
        watch: How faults come to be known.
        features: What the API server keeps of slices; None until it was asked.
        pool: The devices to publish.
        publisher: How publishing stands.
        health: The devices as the kubelet is to see them.
        registration: What the kubelet decided of us.
    """

    board: Observable[Board] = field(default_factory=lambda: Observable(EMPTY_BOARD))
    watch: Observable[WatchStatus] = field(default_factory=lambda: Observable(WatchStatus()))
    features: Observable[ServerFeatures | None] = field(default_factory=lambda: Observable(None))
    pool: Observable[tuple[Device, ...]] = field(default_factory=lambda: Observable(()))
    publisher: Observable[PublisherStatus] = field(
        default_factory=lambda: Observable(PublisherStatus())
    )
    health: Observable[Devices] = field(default_factory=lambda: Observable(()))
    registration: Observable[RegistrationStatus] = field(
        default_factory=lambda: Observable(NOT_REGISTERED)
    )


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The tools of one daemon; nothing runs yet.

    Attributes:
        settings: What the operator wants.
        host: The files of the node.
        dcmi: The driver's library; None on a node without NPUs.
        faults: What is known of faults over time.
        ledger: Who holds what.
        cdi: What containers get.
        policy: What health means to the scheduler.
        endpoints: Where the kubelet finds us.
        credentials: How to reach the API server.
        metrics: What happened, in numbers.
        facts: What tasks tell each other.
    """

    settings: Settings
    host: Host
    dcmi: Dcmi | None
    faults: NodeFaults
    ledger: Ledger
    cdi: CdiFolder
    policy: TaintPolicy
    endpoints: Endpoints
    credentials: Credentials
    metrics: Metrics
    facts: Facts

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Make them.

        Raises:
            ConfigError: A setting, the kubeconfig or a socket's path is wrong.
            LibraryMissing: The node has Ascend hardware and no libdcmi.so.
        """
        host = Host(
            host_root=settings.host_root, dev_root=settings.dev_root, sysfs_root=settings.sysfs_root
        )
        metrics = Metrics()
        dcmi = load_driver(host, metrics.dcmi_called)
        reached(Point.START_LIBRARY_LOADED)
        return cls(
            settings=settings,
            host=host,
            dcmi=dcmi,
            faults=NodeFaults(settings.plugin_directory),
            ledger=Ledger(settings.plugin_directory),
            cdi=CdiFolder(
                root=settings.cdi_root,
                driver_name=settings.driver_name,
                host=host,
                library_path=settings.container_library_path,
            ),
            policy=TaintPolicy.parse(settings.taint_effect, domain=settings.driver_name),
            endpoints=Endpoints.of(
                settings.driver_name,
                plugins_directory=settings.kubelet_plugins_directory_path,
                registrar_directory=settings.kubelet_registrar_directory_path,
                pod_uid=settings.pod_uid,
            ),
            credentials=load_credentials(settings.kubeconfig),
            metrics=metrics,
            facts=Facts(),
        )

    def claims(self, reader: ClaimReader) -> NodeClaims:
        """What prepares claims, which it reads from *reader*."""
        return NodeClaims(
            reader=reader,
            board=self.facts.board,
            host=self.host,
            ledger=self.ledger,
            cdi=self.cdi,
            driver_name=self.settings.driver_name,
            pool_name=self.settings.node_name,
            on_call=self.metrics.call_answered,
        )

    def watcher(self, worker: DcmiWorker, dcmi: Dcmi) -> Callable[..., Awaitable[None]]:
        """The task that keeps the Board true."""
        return partial(
            watch_board,
            worker,
            dcmi,
            self.host,
            board=self.facts.board,
            faults=self.faults,
            status=self.facts.watch,
            interval_seconds=self.settings.health_poll_interval,
            told=self.metrics.event_heard,
        )

    def devices(self) -> tuple[Device, ...]:
        """The devices to publish of the newest Board; the API server's features must be known."""
        board, features = self.facts.board.value, self.facts.features.value
        assert features is not None
        devices = build_devices(board, self.policy, features)
        # Before our first pool an older instance publishes, or there was nothing to be late with.
        if self.facts.publisher.value.published and devices != self.facts.pool.value:
            self.metrics.latency.pool_changed(board.heard_at)
        return devices

    def holders(self, device: str) -> list[ObjectReference]:
        """The claims that hold a chip, by its name."""
        chip = self.facts.board.value.by_name.get(device)
        held = holds_of([chip.device_node], self.ledger.holds.value) if chip else ()
        return [
            ObjectReference(
                api_version=ResourceClaim.group_version,
                kind=ResourceClaim.kind_name,
                namespace=hold.holder.namespace,
                name=hold.holder.name,
                uid=hold.holder.uid,
            )
            for hold in held
            if hold.holder.kind is HolderKind.CLAIM
        ]

    def chips_at(self, nodes: Collection[str]) -> list[str]:
        """The names of the chips that have one of these device nodes."""
        return [chip.name for chip in self.facts.board.value.chips if chip.device_node in nodes]

    def control(self, worker: DcmiWorker) -> Control:
        """What `npu-dra health` asks; *worker* knows the calls that hang."""
        return Control(
            board=self.facts.board,
            watch=self.facts.watch,
            features=self.facts.features,
            worker=worker,
            faults=self.faults,
            holders=self.holders,
        )

    def health(self, bridge: Bridge) -> Health:
        """What probes ask; *bridge* calls our own sockets."""
        return Health(
            bridge=bridge,
            service=self.endpoints.service,
            registration_socket=self.endpoints.registration,
            registration=self.facts.registration,
            publisher=self.facts.publisher,
            watch=self.facts.watch if self.dcmi is not None else None,
            claims=self.ledger.problem,
        )

    def pages(self, worker: DcmiWorker, probes: Probes) -> Callable[..., Awaitable[None]]:
        """The task that serves the HTTP port; *worker* asks the NPUs."""
        readings = NpuReadings(
            worker, self.dcmi if self.settings.npu_metrics else None, self.facts.board
        )
        self.metrics.registry.register(
            NodeState(
                board=self.facts.board,
                watch=self.facts.watch,
                features=self.facts.features,
                publisher=self.facts.publisher,
                registration=self.facts.registration,
                holds=self.ledger.holds,
                written_off=lambda: worker.written_off,
                readings=readings,
            )
        )
        return partial(
            serve_pages,
            self.metrics.registry,
            readings.refresh,
            probes,
            port=self.settings.http_port,
        )
