"""One instance of the driver on a node, with the steps that a test is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.claims.node import AT_ONCE, NodeOnDisk, ref
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.claims.repair import Repair
from trio_npu_dra.agent.claims.steps import Step
from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.offers import PartitionMode
from trio_npu_dra.kit.base.observable import Observable


class Instance:
    """One instance.

    Args:
        node: Its node.
        steps: Makes its steps.
        patience: How long calls try again.
        partitioning: Whether it cuts chips.
    """

    def __init__(
        self,
        node: NodeOnDisk,
        steps: Callable[[Ledger, CdiFolder], Sequence[Step]],
        *,
        patience: Patience = AT_ONCE,
        partitioning: Observable[PartitionMode] | None = None,
    ) -> None:
        self.node = node
        self.ledger, self.cdi = node.ledger(), node.cdi()
        made = steps(self.ledger, self.cdi)
        self.claims = node.start(
            ledger=self.ledger,
            cdi=self.cdi,
            steps=made,
            patience=patience,
            partitioning=partitioning,
        )
        self._repair = Repair(self.ledger, self.cdi, made)

    @property
    def holds(self) -> tuple[Hold, ...]:
        """All holds that it knows."""
        return self.ledger.holds.value

    async def prepare(self, *names: str) -> str:
        """Prepare claims; the errors."""
        answers = await self.claims.prepare([ref(name) for name in names])
        return "; ".join(answer.error for answer in answers.values() if answer.error)

    async def unprepare(self, *names: str) -> str:
        """Unprepare claims; the errors."""
        answers = await self.claims.unprepare([ref(name) for name in names])
        return "; ".join(filter(None, answers.values()))

    async def look(self) -> None:
        """Look at all claims, as a start does."""
        await self._repair.reconcile(is_first=True)
