"""Publishing a Board: what the NPUs are, turned into the pool of this node."""

from __future__ import annotations

import trio

from trio_npu_dra.kube.client import KubeClient
from trio_npu_dra.kube.objects import Device
from trio_npu_dra.npu.model import Board
from trio_npu_dra.observable import Observable
from trio_npu_dra.slices.build import build_devices
from trio_npu_dra.slices.publisher import PublisherStatus, publish


async def publish_board(
    client: KubeClient,
    board: Observable[Board],
    *,
    node_name: str,
    driver_name: str,
    status: Observable[PublisherStatus],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Publish *board*, now and after each change, until cancelled.

    Args:
        client: The API server.
        board: What the NPUs are.
        node_name: This node, which is also the pool's name.
        driver_name: The driver.
        status: Kept up to date.
        task_status: Told when the loop runs.
    """
    pool: Observable[tuple[Device, ...]] = Observable(build_devices(board.value))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow, board, pool)
        await publish(
            client,
            node_name=node_name,
            driver_name=driver_name,
            pool=pool,
            status=status,
            task_status=task_status,
        )


async def _follow(board: Observable[Board], pool: Observable[tuple[Device, ...]]) -> None:
    async for newest in board.changes():
        pool.set(build_devices(newest))
