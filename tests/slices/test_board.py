"""Promises of publishing a Board."""

from functools import partial

import trio

from trio_npu_dra.kube.client import KubeClient
from trio_npu_dra.kube.objects import ResourceSlice
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, ChipFamily, Npu
from trio_npu_dra.observable import Observable
from trio_npu_dra.slices.board import publish_board
from trio_npu_dra.slices.publisher import PublisherStatus
from trio_npu_dra.standins.api_state import ApiState

NPU = Npu(
    physical_id=0,
    logic_id=0,
    card_id=0,
    device_id=0,
    family=ChipFamily.ASCEND_910B,
    chip_name="910B4",
)


async def test_a_changed_board_is_published(client: KubeClient, state: ApiState) -> None:
    """NPUs that are found later appear in the pool."""
    board = Observable(EMPTY_BOARD)
    status = Observable(PublisherStatus())
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(
                publish_board,
                client,
                board,
                node_name="node-1",
                driver_name="npu.example.com",
                status=status,
            )
        )
        with trio.fail_after(5):
            while not status.value.published:
                await trio.lowlevel.checkpoint()
            board.set(Board(npus=(NPU,)))
            while status.value.devices != 1:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    (stored,) = state.all(ResourceSlice)
    assert [device.name for device in stored.spec.devices or ()] == ["npu-0"]
