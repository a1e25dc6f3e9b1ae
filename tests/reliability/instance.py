"""Instances of the driver in this process, a node for models, and calls that take no time."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import trio
from hypothesis.stateful import RuleBasedStateMachine
from trio.testing import MockClock

from tests.claims.flags import FlagFiles
from tests.claims.instance import Instance
from tests.claims.marking import two_steps
from tests.claims.node import IMPATIENT, NodeOnDisk, npu, ref
from trio_npu_dra.agent.claims.repair import keep_cdi_files
from trio_npu_dra.agent.claims.steps import Step
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.agent.holds.ledger import Ledger
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


class MarkingInstance(Instance):
    """An instance whose claims have markers and share flags for steps."""

    def __init__(self, node: NodeOnDisk) -> None:
        flags = FlagFiles(node.root / FLAGS, node.board)
        self.steps: tuple[Step, ...] = ()

        def steps(ledger: Ledger, cdi: CdiFolder) -> tuple[Step, ...]:
            markers = two_steps(node.root, is_for_all=False)
            self.steps = (*markers, ShareFlagStep(ledger, cdi, node.board, flags))
            return self.steps

        super().__init__(node, steps, patience=IMPATIENT)

    async def live(self, seconds: float = 0.0) -> None:
        """Compare files with records, as at a start, and go on for *seconds*."""
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_cdi_files, self.ledger, self.cdi, self.steps)
            await trio.sleep(seconds)
            nursery.cancel_scope.cancel()


class NodeModel(RuleBasedStateMachine):
    """A node on which claims are prepared and unprepared, and instances killed."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self.root = Path(self._folder.name)
        self.node = NodeOnDisk(self.root / "node")
        self.flags = self.node.root / FLAGS

    @property
    def shared_chips(self) -> set[int]:
        """The chips whose flag is set."""
        return {int(path.name) for path in self.flags.glob("*")}

    def close(self) -> None:
        """Remove the node."""
        self._folder.cleanup()


def run(call: Callable[[], Awaitable[T]]) -> T:
    """One call, waits included, in no time."""

    async def bounded() -> T:
        with trio.fail_after(3600):
            return await call()

    return trio.run(bounded, clock=MockClock(autojump_threshold=0))


def refs(uids: Iterable[str]) -> list[ClaimRef]:
    """Claims as the kubelet names them."""
    return [ref(uid.removeprefix("uid-")) for uid in uids]


def calling(
    instance: Instance, uids: Sequence[str], is_prepare: bool
) -> Callable[[], Awaitable[object]]:
    """A call about claims."""
    call = instance.claims.prepare if is_prepare else instance.claims.unprepare
    return lambda: call(refs(uids))
