"""One process of the driver, in this process, and calls to it that take no time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TypeVar

import trio
from trio.testing import MockClock

from tests.claims.flags import FlagFiles
from tests.claims.marking import two_steps
from tests.claims.node import NodeOnDisk, npu, ref
from tests.claims.test_cancelled import keep_busy
from trio_npu_dra.agent.claims.repair import keep_cdi_files
from trio_npu_dra.agent.claims.share_flag import ShareFlagStep
from trio_npu_dra.ascend.dcmi.types import ChipRef, MultiDiePolicy
from trio_npu_dra.ascend.model import Board, ChipFamily
from trio_npu_dra.kit.kubelet.driver import ClaimRef

T = TypeVar("T")

FLAGS = "flags"
"""The folder of a node with the share flags of its chips."""


def board(policy: MultiDiePolicy) -> Board:
    """Two NPUs, and an A3 card."""
    dies = (
        replace(
            npu(n),
            ref=ChipRef(1, n % 2),
            card_id=1,
            device_id=n % 2,
            family=ChipFamily.ASCEND_910_A3,
        )
        for n in (2, 3)
    )
    return Board(chips=(npu(0), npu(1), *dies), multi_die_policy=policy)


class Instance:
    """One process of the driver."""

    def __init__(self, node: NodeOnDisk) -> None:
        self.ledger, self.cdi = node.ledger(), node.cdi()
        keep_busy(self.ledger)
        flags = FlagFiles(node.root / FLAGS, node.board)
        self.steps = (
            *two_steps(node.root, is_for_all=False),
            ShareFlagStep(self.ledger, self.cdi, node.board, flags),
        )
        self.claims = node.start(ledger=self.ledger, cdi=self.cdi, steps=self.steps)

    async def look(self, seconds: float = 0.0) -> None:
        """Compare files with records, as at a start, and go on for *seconds*."""
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_cdi_files, self.ledger, self.cdi, self.steps)
            await trio.sleep(seconds)
            nursery.cancel_scope.cancel()


def run(call: Callable[[], Awaitable[T]]) -> T:
    """One call, waits included, in no time."""

    async def bounded() -> T:
        with trio.fail_after(3600):
            return await call()

    return trio.run(bounded, clock=MockClock(autojump_threshold=0))


def refs(uids: Iterable[str]) -> list[ClaimRef]:
    """The kubelet's words for claims."""
    return [ref(uid.removeprefix("uid-")) for uid in uids]
