"""From the watcher's Boards to the ResourceSlices."""

from __future__ import annotations

import math
from functools import partial
from typing import Final, NoReturn

import trio

from trio_npu_dra.agent.daemon.node import NodeContext
from trio_npu_dra.agent.daemon.resources import serve_resources
from trio_npu_dra.agent.device_plugin.cdi_file import devices_before
from trio_npu_dra.agent.devices.build import build_pool
from trio_npu_dra.agent.devices.features import follow_features
from trio_npu_dra.agent.devices.shares import held_as_published
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.availability import pool_offers
from trio_npu_dra.agent.holds.hold import vnpu_holders
from trio_npu_dra.agent.report.claim_status_writer import write_claim_statuses
from trio_npu_dra.agent.report.device_health import device_health
from trio_npu_dra.agent.report.events import write_events
from trio_npu_dra.agent.report.labelled_node import NodeLabels, keep_node
from trio_npu_dra.agent.report.node_labels import TOPOLOGY_KEYS, board_labels
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.ascend.watcher import BoardWatch
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.base.observable import Observable, derive
from trio_npu_dra.kit.kubelet.device_health import DeviceHealths
from trio_npu_dra.kit.kubelet.registration import wait_registered
from trio_npu_dra.kit.pool import PoolContent, publish

_AGAIN_SECONDS: Final = 5.0  # a vNPU may be in use for a moment after its containers ended


async def publish_chips(
    node: NodeContext,
    kube: KubeClient,
    worker: DcmiWorker,
    *,
    cdi: CdiFolder,
    flags: ShareFlagStep,
) -> None:
    """Publish the node's chips, until cancelled.

    The first pool waits until chips are read and, with device plugin resources, pods listed.
    """
    async with trio.open_nursery() as nursery:
        follow = partial(
            follow_features,
            kube,
            node_name=node.settings.node_name,
            driver_name=node.settings.driver_name,
            features=node.features,
            status=node.publisher,
        )
        nursery.start_soon(follow)
        await _watch(node, nursery, worker)
        nursery.start_soon(_read_what_ended, node)
        node.leaving.set(await disk.run(partial(devices_before, cdi)))
        # Claims come in bursts and change the offers of few nodes: without the delay a prepare and
        # an unprepare are 7 % more calls of functions.
        sources = node.board, node.partitioning, node.leaving
        offers = partial(derive, lazily=[node.ledger.holds])
        await nursery.start(offers, node.offers, partial(_offered, node), *sources)
        await nursery.start(derive, node.device_health, partial(_device_health, node), node.offers)
        async with trio.open_nursery() as publishing:
            resources = partial(serve_resources, cdi=cdi, flags=flags)
            publishing.start_soon(resources, node, worker)
            if node.settings.label_node:
                await publishing.start(_label_node, node, kube)
            await node.features.wait_until(lambda features: features is not None)
            pool_of = node.offers, node.features, node.shared_for_claims
            await publishing.start(derive, node.pool, partial(_pool, node), *pool_of)
            await wait_registered(node.registration)
            if node.selection:
                await node.pods_known.wait_until(bool)
                # Without the delay of `lazily`: no pool may have what pods have.
                node.offers.set(_offered(node))
                node.pool.set(_pool(node))
            publishing.start_soon(_report_chips, node, kube)
            await publish(
                kube,
                node_name=node.settings.node_name,
                driver_name=node.settings.driver_name,
                pool=node.pool,
                status=node.publisher,
                on_event=node.published,
            )


async def _watch(node: NodeContext, nursery: trio.Nursery, worker: DcmiWorker) -> None:
    watch = BoardWatch(
        worker=worker,
        dcmi=node.dcmi,
        host=node.host,
        board=node.board,
        interval=node.settings.health_poll_interval,
        faults=node.faults,
        status=node.watch,
        division=node.division,
        on_event=node.metrics.note,
    )
    await nursery.start(watch.run, Board(chips=node.ledger.remembered_chips()))


async def _read_what_ended(node: NodeContext) -> NoReturn:
    """Have vNPUs read that nobody holds any more until no container uses them."""
    while True:
        holds = node.ledger.holds.value
        held = vnpu_holders(holds)
        vdevices = [vdevice for chip in node.board.value.chips for vdevice in chip.vdevices]
        is_used = any(vdevice.in_use and vdevice.id not in held for vdevice in vdevices)
        if is_used:
            node.division.request()
        with trio.move_on_after(_AGAIN_SECONDS if is_used else math.inf):
            await node.ledger.holds.wait_for_other(holds)


async def _report_chips(node: NodeContext, kube: KubeClient) -> None:
    """Report what slices do not have: by Events, and with a flag in claims."""
    settings = node.settings
    async with trio.open_nursery() as nursery:
        events = partial(
            write_events,
            node_name=settings.node_name,
            publisher=node.publisher,
            component=settings.driver_name,
            since=node.started_at,
        )
        ledger = node.ledger
        nursery.start_soon(events, kube, node.board, ledger.holds, node.shared, ledger.set_aside)
        if settings.claim_status:
            statuses = partial(
                write_claim_statuses,
                driver_name=settings.driver_name,
                host=node.host,
                on_event=node.metrics.note,
            )
            nursery.start_soon(statuses, kube, node.board, node.ledger, node.calls, node.reported)


async def _label_node(
    node: NodeContext,
    kube: KubeClient,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Label the Node by its NPUs, until cancelled.

    Started once that was tried, because pods come with the first slice and are placed by labels.
    """
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


def _offered(node: NodeContext) -> tuple[Board, tuple[Offer, ...]]:
    board, holds, partitioning = node.board.value, node.ledger.holds.value, node.partitioning.value
    offers = pool_offers(board, holds, partitioning, elsewhere=node.elsewhere())
    return board, held_as_published(offers, shares=node.settings.shares)


def _device_health(node: NodeContext) -> DeviceHealths:
    _, offers = node.offers.value
    return device_health(offers, node.settings.node_name)


def _pool(node: NodeContext) -> PoolContent:
    (board, offers), features = node.offers.value, node.features.value
    assert features is not None  # nothing is published before the API server was asked
    pool = build_pool(
        offers,
        board,
        node.policy,
        features,
        shares=node.settings.shares,
        shared_for_claims=node.shared_for_claims.value,
    )
    # Before our first pool the instance before us published, or nothing could be late.
    is_late = node.publisher.value.published and pool != node.pool.value
    node.latency.pool_made(board, is_late=is_late)
    return pool
