"""Device plugin resources: what the daemon gives to the package that serves them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from trio_npu_dra.agent.daemon.node import NodeContext
from trio_npu_dra.agent.device_plugin.node_plugins import NodePlugins
from trio_npu_dra.agent.device_plugin.pods import PodList
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.hold import Hold, HolderKind, node_of_pod
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.occupancy import is_any_occupied
from trio_npu_dra.kit.api.credentials import own_namespace
from trio_npu_dra.kit.kubelet.device_plugin.pod_resources import list_pod_resources
from trio_npu_dra.kit.kubelet.device_plugin.registration import serve_resource
from trio_npu_dra.kit.kubelet.endpoints import KUBELET_SOCKET


async def serve_resources(
    node: NodeContext, worker: DcmiWorker, *, cdi: CdiFolder, flags: ShareFlagStep
) -> None:
    """Serve device plugin resources, and take back what was given out.

    A node without resources does not ask the kubelet for its pods.
    """
    if not node.selection and not node.leaving.value:
        await node.ledger.holds.wait_until(partial(_has_pods, node.ledger))
    settings = node.settings
    pods = settings.kubelet_pod_resources_directory_path / KUBELET_SOCKET
    plugins = NodePlugins(
        selection=node.selection,
        board=node.board,
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
