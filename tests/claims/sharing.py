"""An instance that shares chips, and claims that have shares."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from tests.claims.flags import FlagFiles
from tests.claims.instance import Instance
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, result
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.agent.handout.share_flag import ShareFlagStep
from trio_npu_dra.kit.base.observable import Observable


class Driver(Instance):
    """One instance that shares chips."""

    def __init__(self, node: NodeOnDisk, flags: FlagFiles, patience: Patience = AT_ONCE) -> None:
        self.flags = flags
        self.ours: Observable[AbstractSet[str]] = Observable(frozenset())
        super().__init__(
            node,
            lambda ledger, cdi: [ShareFlagStep(ledger, cdi, node.board, flags, self.ours)],
            patience=patience,
        )

    def restarted(self) -> Driver:
        """The next instance."""
        return Driver(self.node, self.flags)

    def change_chips(self, **changes: object) -> None:
        """Have the Board say something else of all chips."""
        board = self.node.board.value
        chips = tuple(replace(chip, **changes) for chip in board.chips)  # type: ignore[arg-type]
        self.node.board.set(replace(board, chips=chips))


def sharing_driver(node: NodeOnDisk) -> Driver:
    """Claims a, b and c have a share of NPU 2 each, d has all of NPU 3."""
    shares = [claim(name, result("npu-2", share_id=f"share-{name}")) for name in "abc"]
    node.source.store(*shares, claim("d", result("npu-3")))
    return Driver(node, FlagFiles(node.root / "flags", node.board))


def file_of(driver: Driver) -> Path:
    """The file with the flags that the driver has set."""
    return driver.node.state_folder / "share-flags.json"


def noted(driver: Driver) -> bool:
    """Whether the driver has recorded that it set a flag."""
    return file_of(driver).exists()
