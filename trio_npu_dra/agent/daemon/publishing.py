"""From the watcher's Boards to the ResourceSlices."""

from __future__ import annotations

from functools import partial

import trio

from trio_npu_dra.agent.claims.by_hand import find_cut_by_hand
from trio_npu_dra.agent.claims.vnpu_step import VnpuStep
from trio_npu_dra.agent.daemon import deferred
from trio_npu_dra.agent.daemon.node import NodeContext
from trio_npu_dra.agent.devices.build import build_pool
from trio_npu_dra.agent.devices.features import follow_features
from trio_npu_dra.agent.devices.shares import held_as_published
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.availability import pool_offers
from trio_npu_dra.agent.report.device_health import device_health
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.offers import Offer
from trio_npu_dra.ascend.watcher import watch_board
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.base.observable import derive
from trio_npu_dra.kit.kubelet.device_health import DeviceHealths
from trio_npu_dra.kit.kubelet.registration import wait_registered
from trio_npu_dra.kit.pool import PoolContent, publish, publisher_lock


async def publish_chips(
    node: NodeContext,
    kube: KubeClient,
    worker: DcmiWorker,
    *,
    cdi: CdiFolder,
    flags: ShareFlagStep,
    partitions: VnpuStep,
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
        await deferred.find_leaving(node, cdi)
        await nursery.start(
            find_cut_by_hand, node.board, node.ledger, partitions, node.partitioning
        )
        # Claims come and go in bursts, and change the offers of few nodes only.
        sources = node.board, node.partitioning, node.leaving
        offers = partial(derive, lazily=[node.ledger.holds])
        await nursery.start(offers, node.offers, partial(_offered, node), *sources)
        await nursery.start(derive, node.device_health, partial(_device_health, node), node.offers)
        # The lock is for resources too, until the last of their tasks has ended: the kubelet takes
        # the plugins of two instances for the same.
        async with (
            publisher_lock(node.settings.plugin_directory, node.publisher),
            trio.open_nursery() as publishing,
        ):
            resources = partial(deferred.serve_resources, cdi=cdi, flags=flags)
            publishing.start_soon(resources, node, worker)
            if node.settings.label_node:
                await publishing.start(deferred.label_node, node, kube)
            await node.features.wait_until(lambda features: features is not None)
            pool_of = node.offers, node.features, node.shared_for_claims
            await publishing.start(derive, node.pool, partial(_pool, node), *pool_of)
            await wait_registered(node.registration)
            if node.selection:
                await node.pods_known.wait_until(bool)
                # Without the delay of `lazily`: no pool may have what pods have.
                node.offers.set(_offered(node))
                node.pool.set(_pool(node))
            publishing.start_soon(deferred.report_chips, node, kube)
            await publish(
                kube,
                node_name=node.settings.node_name,
                driver_name=node.settings.driver_name,
                pool=node.pool,
                status=node.publisher,
                on_event=node.published,
            )


async def _watch(node: NodeContext, nursery: trio.Nursery, worker: DcmiWorker) -> None:
    watch = partial(
        watch_board,
        board=node.board,
        faults=node.faults,
        status=node.watch,
        interval_seconds=node.settings.health_poll_interval,
        known=Board(chips=node.ledger.remembered_chips()),
        division=node.division,
        on_event=node.facts,
    )
    await nursery.start(watch, worker, node.dcmi, node.host)


def _offered(node: NodeContext) -> tuple[Board, tuple[Offer, ...]]:
    board, holds, partitioning = node.board.value, node.ledger.holds.value, node.partitioning.value
    offers = pool_offers(board, holds, partitioning, elsewhere=node.elsewhere(board))
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
    # Before our first pool either an older instance publishes or nothing could be late.
    is_late = node.publisher.value.published and pool != node.pool.value
    node.latency.pool_made(board, is_late=is_late)
    return pool
