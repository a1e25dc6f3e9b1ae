"""What the daemon's tasks share: what packages know about the node, and pass to each other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from trio_npu_dra.agent.claims.service import CallAnswered
from trio_npu_dra.agent.device_plugin.assignment import elsewhere
from trio_npu_dra.agent.device_plugin.device import DevicesByResource
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.agent.holds.hold import SharedClaim
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.agent.holds.owner import Owner
from trio_npu_dra.agent.observe.metrics import EventLatency, Metrics
from trio_npu_dra.agent.report.claim_status import Reported
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.division_poll import DivisionPoll
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, UNREAD_BOARD, Board
from trio_npu_dra.ascend.offers import Offer, PartitionMode
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.kit.base.boot import SteadyClock
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.device_health import DeviceHealths
from trio_npu_dra.kit.kubelet.endpoints import Endpoints
from trio_npu_dra.kit.kubelet.registration import NOT_REGISTERED, RegistrationStatus
from trio_npu_dra.kit.pool import PoolAccepted, PoolContent, PublisherStatus, SliceWritten


class NodeContext:
    """What tasks share. One package sets each `Observable`; what has one user is made beside it.

    Raises:
        ConfigError: A setting is wrong.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.started_at = time.time()
        self.metrics = Metrics()
        self.latency = EventLatency(self.metrics.note)
        self.host = Host(
            host_root=settings.host_root,
            dev_root=settings.dev_root,
            sysfs_root=settings.sysfs_root,
            extra_mounts=settings.extra_mounts,
        )
        self.dcmi = Dcmi.at(self.host.host_root, self.metrics.note)
        self.policy = TaintPolicy.parse(settings.taint_effect, domain=settings.driver_name)
        self.endpoints = Endpoints(
            driver_name=settings.driver_name,
            plugin_directory=settings.plugin_directory,
            registrar_directory=settings.kubelet_registrar_directory_path,
            pod_uid=settings.pod_uid,
        )
        clock = SteadyClock()
        self.faults = NodeFaults(
            settings.plugin_directory,
            clock=clock,
            boot=clock.boot,
            settle_seconds=settings.evict_after,
        )
        self.owner = Owner(settings.plugin_directory, self.endpoints.service)
        self.ledger = Ledger(settings.plugin_directory, check=self.owner.check)
        self.seen: Observable[Board] = Observable(UNREAD_BOARD)  # while it waits to own
        # set by ascend
        self.board: Observable[Board] = Observable(UNREAD_BOARD)
        self.watch = Observable(WatchStatus())
        self.division = DivisionPoll()
        is_partitioning = settings.partitioning == "dynamic"
        self.partitioning = Observable(PartitionMode(is_on=is_partitioning))
        # set by claims
        self.shared: Observable[Mapping[str, SharedClaim]] = Observable({})
        self.shared_for_claims: Observable[AbstractSet[str]] = Observable(frozenset())
        self.calls = Observable(0)  # that were answered
        # set by report
        self.reported: Reported = Observable({})
        # set by holds, report, devices and pool
        self.offers: Observable[tuple[Board, tuple[Offer, ...]]] = Observable((EMPTY_BOARD, ()))
        self.device_health: Observable[DeviceHealths] = Observable(())
        self.features: Observable[ServerFeatures | None] = Observable(None)
        self.pool = Observable(PoolContent())
        self.publisher = Observable(PublisherStatus())
        # set by kubelet
        self.registration: Observable[RegistrationStatus] = Observable(NOT_REGISTERED)
        # set by device_plugin (`NodePlugins`)
        self.selection = Selection.parse(
            settings.device_plugin, shares=settings.device_plugin_shares
        )
        self.leaving: Observable[Mapping[int, tuple[str, ...]]] = Observable({})
        self.resources: Observable[DevicesByResource] = Observable({})
        self.waiting: Observable[Mapping[str, str]] = Observable({})
        self.pods_known = Observable(False)
        self.containers: Observable[Mapping[str, str]] = Observable({})

    def elsewhere(self) -> AbstractSet[str]:
        """The device nodes of the chips that are not for the DRA pool."""
        return elsewhere(self.board.value, self.selection, leaving=self.leaving.value)

    def lacks(self) -> tuple[str, ...]:
        """What an instance that waits to own the node would lack to serve it."""
        features, board = self.features.value, self.seen.value
        unasked = () if features else ("the API server has not answered yet",)
        return (*(() if board.is_read else board.gaps), *unasked)

    def answered(self, call: CallAnswered) -> None:
        """Note that a call of the kubelet was answered."""
        self.metrics.note(call)
        self.calls.set(self.calls.value + 1)

    def published(self, fact: SliceWritten | PoolAccepted) -> None:
        """Note what the publisher did."""
        if isinstance(fact, PoolAccepted):
            self.latency.pool_accepted()
        else:
            self.metrics.note(fact)
