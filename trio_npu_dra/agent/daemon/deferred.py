"""What is loaded later or never, as neither the kubelet's first call nor the first slice needs it.

A start is mostly imports. So these functions import what they start when they start it, most of
them once the first slice is there, and nothing else imports the rooms below.
`tests/cli/test_serve.py` has the list of what may be imported before the kubelet is answered.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

import trio

from trio_npu_dra.agent.daemon.node import NodeContext
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.hold import Hold, HolderKind, node_of_pod
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.occupancy import is_any_occupied
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.base.observable import Observable, derive
from trio_npu_dra.kit.http import LateHandler
from trio_npu_dra.kit.kubelet.endpoints import KUBELET_SOCKET
from trio_npu_dra.kit.kubelet.probes import Probes


async def make_pages(
    node: NodeContext, worker: DcmiWorker, probes: Probes, pages: LateHandler
) -> None:
    """Answer with /metrics and the pages of probes, until cancelled."""
    await node.first_answers()
    from trio_npu_dra.agent.observe.metrics import Metrics
    from trio_npu_dra.agent.observe.pages import answer_pages
    from trio_npu_dra.agent.observe.state import NodeState, NpuReadings

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
            containers=node.containers,
            written_off=lambda: worker.written_off,
            readings=readings,
        )
    )
    await answer_pages(metrics.registry, readings.refresh, probes, pages)


async def make_control(node: NodeContext, worker: DcmiWorker, pages: LateHandler) -> None:
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
        waiting=node.waiting,
    )
    pages.become(control.pages())


async def report_chips(node: NodeContext, kube: KubeClient) -> None:
    """Report what slices do not have: by Events, and with a flag in claims."""
    await node.first_answers()
    from trio_npu_dra.agent.report.events import write_events

    settings = node.settings
    async with trio.open_nursery() as nursery:
        events = partial(
            write_events,
            node_name=settings.node_name,
            publisher=node.publisher,
            component=settings.driver_name,
            since=node.started_at,
        )
        nursery.start_soon(events, kube, node.board, node.ledger.holds, node.shared)
        if settings.claim_status:
            from trio_npu_dra.agent.report.claim_status_writer import write_claim_statuses

            statuses = partial(
                write_claim_statuses,
                driver_name=settings.driver_name,
                host=node.host,
                on_event=node.facts,
            )
            nursery.start_soon(statuses, kube, node.board, node.ledger, node.calls, node.reported)
        else:
            from trio_npu_dra.agent.report.status_files import StatusFiles

            # A claim may be allocated anew meanwhile, without what was written before.
            await disk.run(partial(StatusFiles(node.ledger.state_folder).keep, ()))


async def label_node(
    node: NodeContext,
    kube: KubeClient,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Label the Node by its NPUs, until cancelled.

    Started once that was tried, because pods come with the first slice and are placed by labels.
    """
    from trio_npu_dra.agent.report.labelled_node import NodeLabels, keep_node
    from trio_npu_dra.agent.report.node_labels import TOPOLOGY_KEYS, board_labels

    domain = node.settings.driver_name
    labels = Observable(NodeLabels())

    def wanted() -> NodeLabels:
        return NodeLabels(
            labels=board_labels(node.board.value, domain), node_uid=node.publisher.value.node_uid
        )

    async with trio.open_nursery() as nursery:
        await nursery.start(derive, labels, wanted, node.board, node.publisher)
        await keep_node(
            kube,
            labels,
            node_name=node.settings.node_name,
            manager=domain,
            unforced=TOPOLOGY_KEYS,
            task_status=task_status,
        )


# --- device plugin resources: a node that has only claims never loads that room ------------------


def select_chips(node: NodeContext) -> None:
    """Read which chips are for device plugin resources.

    Raises:
        ConfigError: The flag is wrong.
    """
    settings = node.settings
    if settings.device_plugin:
        from trio_npu_dra.agent.device_plugin.selection import Selection

        node.selection = (
            Selection.parse(settings.device_plugin, shares=settings.device_plugin_shares) or None
        )


async def find_leaving(node: NodeContext, cdi: CdiFolder) -> None:
    """Find the chips that were in a resource before this start; keep all such from the DRA pool."""
    if node.selection is None and not await disk.run(partial(os.path.lexists, cdi.devices_path)):
        return
    from trio_npu_dra.agent.device_plugin.assignment import elsewhere
    from trio_npu_dra.agent.device_plugin.cdi_file import devices_before
    from trio_npu_dra.agent.device_plugin.selection import Selection

    node.leaving.set(await disk.run(partial(devices_before, cdi)))
    selection = node.selection or Selection()
    node.elsewhere = lambda board: elsewhere(board, selection, leaving=node.leaving.value)


async def serve_resources(
    node: NodeContext,
    worker: DcmiWorker,
    *,
    cdi: CdiFolder,
    flags: ShareFlagStep,
) -> None:
    """Serve device plugin resources, and take back what was given out.

    With resources the first slice waits for what the kubelet says of pods, so they are served
    without delay.
    """
    if node.selection is None:
        await node.first_answers()
        if not node.leaving.value:
            await node.ledger.holds.wait_until(partial(_has_pods, node.ledger))
    from trio_npu_dra.agent.device_plugin.node_plugins import NodePlugins
    from trio_npu_dra.agent.device_plugin.pods import PodList
    from trio_npu_dra.agent.device_plugin.selection import Selection
    from trio_npu_dra.kit.api.credentials import own_namespace
    from trio_npu_dra.kit.kubelet.device_plugin.pod_resources import list_pod_resources
    from trio_npu_dra.kit.kubelet.device_plugin.registration import serve_resource

    settings = node.settings
    pods = settings.kubelet_pod_resources_directory_path / KUBELET_SOCKET
    plugins = NodePlugins(
        selection=node.selection or Selection(),
        board=node.board,
        partitioning=node.partitioning,
        ledger=node.ledger,
        cdi=cdi,
        is_busy=partial(is_any_occupied, worker, node.dcmi, node.board),
        flags=flags,
        pods=PodList(
            read=partial(list_pod_resources, pods),
            own_pod=settings.pod_name,
            own_namespace=own_namespace(),
        ),
        serve_plugin=partial(
            serve_resource,
            folder=settings.kubelet_device_plugins_directory_path,
            driver_name=settings.driver_name,
        ),
        leaving=node.leaving,
        devices=node.resources,
        waiting=node.waiting,
        pods_known=node.pods_known,
        containers=node.containers,
    )
    await plugins.serve()


def _has_pods(ledger: Ledger, holds: Iterable[Hold]) -> bool:
    """Whether pods have devices by records, of which some may not be readable."""
    return any(hold.holder.kind is HolderKind.POD for hold in holds) or any(
        node_of_pod(uid) for uid in ledger.unreadable
    )
