"""What is loaded later: neither the kubelet's first call nor the first ResourceSlice needs it.

A start is mostly imports. So the functions here import what they start themselves, once the first
slice is there, and this is the only module that does so: nothing else imports the rooms below.
`tests/cli/test_serve.py` has the list of what may be imported before the kubelet is answered.
"""

from __future__ import annotations

from functools import partial

import trio

from trio_npu_dra.agent.claims.cdi import CdiFolder
from trio_npu_dra.agent.claims.share_flag import ShareFlagStep
from trio_npu_dra.agent.daemon.node import Node
from trio_npu_dra.agent.holds.hold import HolderKind, node_of_pod
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.occupancy import is_any_occupied
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.grpc import Bridge
from trio_npu_dra.kit.http import LateHandler
from trio_npu_dra.kit.kubelet.endpoints import KUBELET_SOCKET
from trio_npu_dra.kit.kubelet.probes import Probes


async def make_pages(node: Node, worker: DcmiWorker, probes: Probes, pages: LateHandler) -> None:
    """Answer with /metrics and the pages of probes, until cancelled."""
    await node.first_answers()
    from trio_npu_dra.agent.observe.metrics import Metrics
    from trio_npu_dra.agent.observe.npu_readings import NpuReadings
    from trio_npu_dra.agent.observe.pages import answer_pages
    from trio_npu_dra.agent.observe.state import NodeState

    metrics = Metrics()
    node.facts.tell(metrics.note)
    readings = NpuReadings(worker, node.dcmi if node.settings.npu_metrics else None, node.board)
    metrics.registry.register(
        NodeState(
            board=node.board,
            watch=node.watch,
            features=node.features,
            publisher=node.publisher,
            registration=node.registration,
            holds=node.ledger.holds,
            written_off=lambda: worker.written_off,
            readings=readings,
        )
    )
    await answer_pages(metrics.registry, readings.refresh, probes, pages)


async def make_control(node: Node, worker: DcmiWorker, pages: LateHandler) -> None:
    """Answer what `npu-dra health` asks."""
    await node.first_answers()
    from trio_npu_dra.agent.control.answers import Control

    control = Control(
        board=node.board,
        watch=node.watch,
        features=node.features,
        worker=worker,
        faults=node.faults,
        holds=node.ledger.holds,
        partitioning=node.partitioning,
        resources=node.resources,
    )
    pages.become(control.pages())


async def tell_others(node: Node, kube: KubeClient) -> None:
    """Tell of the chips what is not in slices: Events and, where wanted, MindCluster's way."""
    await node.first_answers()
    from trio_npu_dra.agent.report.events import write_events

    settings = node.settings
    async with trio.open_nursery() as nursery:
        events = partial(
            write_events,
            node_name=settings.node_name,
            node_uid=node.node_uid,
            component=settings.driver_name,
            since=node.started_at,
        )
        nursery.start_soon(events, kube, node.board, node.ledger.holds, node.shared)
        if settings.mindcluster_compat:
            from trio_npu_dra.agent.mindcluster.service import follow_mindcluster

            devices, holds = node.resources.devices, node.ledger.holds
            nursery.start_soon(follow_mindcluster, kube, devices, holds, settings.node_name)


async def serve_resources(
    node: Node,
    kube: KubeClient,
    worker: DcmiWorker,
    bridge: Bridge,
    *,
    cdi: CdiFolder,
    flags: ShareFlagStep,
) -> None:
    """Serve device plugin resources, and take back what was given out.

    With resources the first slice waits for what the kubelet says of pods, so they are served at
    once. A node that never had any loads none of this.
    """
    if not node.selection:
        await node.first_answers()
    if not node.selection and not node.resources.leaving.value:
        await node.ledger.holds.wait_until(
            lambda holds: (
                any(hold.holder.kind is HolderKind.POD for hold in holds)
                or any(node_of_pod(uid) for uid in node.ledger.unreadable)
            )
        )
    from trio_npu_dra.agent.device_plugin import service
    from trio_npu_dra.agent.device_plugin.pods import PodList
    from trio_npu_dra.kit.api.credentials import own_namespace
    from trio_npu_dra.kit.kubelet.device_plugin.pod_resources import list_pod_resources
    from trio_npu_dra.kit.kubelet.device_plugin.registration import serve_resource

    settings = node.settings
    chooser = None
    if settings.mindcluster_compat:
        from trio_npu_dra.agent.mindcluster.volcano import VolcanosChoices

        chooser = VolcanosChoices(kube, node.board, settings.node_name)
    pods = settings.kubelet_pod_resources_directory_path / KUBELET_SOCKET
    resources = service.PluginDeps(
        selection=node.selection,
        board=node.board,
        partitioning=node.partitioning,
        ledger=node.ledger,
        cdi=cdi,
        is_busy=partial(is_any_occupied, worker, node.dcmi, node.board),
        pods=PodList(
            read=partial(list_pod_resources, bridge, pods),
            own_pod=settings.pod_name,
            own_namespace=own_namespace(),
        ),
        serve=partial(
            serve_resource,
            bridge,
            folder=settings.kubelet_device_plugins_directory_path,
            driver_name=settings.driver_name,
        ),
        flags=flags,
        state=node.resources,
        chooser=chooser,
    )
    await service.serve_resources(resources)
