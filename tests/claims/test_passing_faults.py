"""Faults that pass while the kubelet waits cost no pod another minute."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import AT_ONCE, FakeClaims, NodeOnDisk, board, claim, ref, result
from tests.claims.test_prepare import prepared
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.claims.service import CallAnswered
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base.errors import Unavailable

KUBELET_LIMIT = 45.0


async def test_an_api_outage_is_waited_out(node: NodeOnDisk, autojump_clock: MockClock) -> None:
    """The kubelet would come back only after more than a minute."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")))
    node.source.faults.extend(Unavailable("503", status=503) for _ in range(10))
    node.source.faults.append(Unavailable("429", status=429, retry_after=7.0))

    answer = await node.start(patience=Patience()).prepare([ref("a")])

    assert answer["uid-a"].devices == (prepared("uid-a", "npu-2"),)


class HangsForA(FakeClaims):
    """Never answers for claim a."""

    async def get(
        self,
        kind: type[ResourceClaim],
        name: str,
        namespace: str | None = None,
        *,
        is_cached: bool = False,
    ) -> ResourceClaim:
        """Hang or answer."""
        if name == "a":
            await trio.sleep_forever()
        return await super().get(kind, name, namespace, is_cached=is_cached)


async def test_a_longer_outage_is_said_before_the_kubelet_gives_up(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """And the other claims of the call are ready by then."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    node.source = HangsForA(node.source.stored)
    claims = node.start(patience=Patience())

    with trio.fail_after(KUBELET_LIMIT):
        answer = await claims.prepare([ref("a"), ref("b")])

    assert answer["uid-a"].error == "the API server did not answer in time"
    assert answer["uid-b"].devices == (prepared("uid-b", "npu-3"),)


async def test_a_device_that_is_freed_soon_is_waited_for(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The scheduler gives the device of a forcibly deleted pod away before the pod has ended."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-2")))
    calls: list[CallAnswered] = []
    claims = node.start(patience=Patience(), on_call=calls.append)
    await claims.prepare([ref("a")])

    async def end_a() -> None:
        await trio.sleep(2)
        await claims.unprepare([ref("a")])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_a)
        answer = await claims.prepare([ref("b")])

    assert answer["uid-b"].devices == (prepared("uid-b", "npu-2"),)
    assert [call.errors for call in calls] == [(), (), ()], "what passed is no error"


async def test_a_claim_that_is_read_slowly_meets_the_node_as_it_is_then(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The look at the node is older than the answer."""
    del autojump_clock
    node.board.set(EMPTY_BOARD)

    class Slow(FakeClaims):
        async def get(self, *args: Any, **kwargs: Any) -> ResourceClaim:
            await trio.sleep(2)
            node.board.set(board())
            return await super().get(*args, **kwargs)

    node.source = Slow({("default", "a"): claim("a", result("npu-2"))})

    answer = await node.start(patience=AT_ONCE).prepare([ref("a")])

    assert answer["uid-a"].devices == (prepared("uid-a", "npu-2"),)


@pytest.mark.parametrize(
    "booting", [EMPTY_BOARD, replace(board(2), unanswered=("card 2: booting",))], ids=["all", "one"]
)
async def test_chips_that_boot_are_waited_for(
    node: NodeOnDisk, autojump_clock: MockClock, booting: Board
) -> None:
    """After a reboot the kubelet may be faster than the NPUs, all of them or the claim's."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")))
    node.board.set(booting)

    async def boot() -> None:
        await trio.sleep(20)
        node.board.set(board())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(boot)
        answer = await node.start(patience=Patience()).prepare([ref("a")])

    assert answer["uid-a"].devices == (prepared("uid-a", "npu-2"),)


async def test_a_record_stays_while_its_cdi_file_cannot_be_written(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The claim holds its NPU, is completed in the same call, or unprepared."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")))
    node.cdi_root.write_text("a file where the folder should be")
    claims = node.start(patience=Patience())

    with trio.fail_after(KUBELET_LIMIT):
        refused = await claims.prepare([ref("a")])
    assert "/cdi" in refused["uid-a"].error
    assert node.record_uids() == {"uid-a"}

    async def mend() -> None:
        await trio.sleep(3)
        node.cdi_root.unlink()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mend)
        answer = await claims.prepare([ref("a")])
    assert answer["uid-a"].devices == (prepared("uid-a", "npu-2"),)
    assert node.cdi_uids() == {"uid-a"}
