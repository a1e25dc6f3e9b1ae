"""One process of the driver, in this process, and calls to it that take no time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio
from trio.testing import MockClock

from tests.claims.node import NodeOnDisk, ref
from trio_npu_dra.claims.repair import keep_cdi_files
from trio_npu_dra.kubelet.driver import ClaimRef

T = TypeVar("T")


class Instance:
    """One process of the driver."""

    def __init__(self, node: NodeOnDisk) -> None:
        self.ledger, self.cdi = node.ledger(), node.cdi()
        self.claims = node.start(ledger=self.ledger, cdi=self.cdi)

    async def look(self, seconds: float = 0.0) -> None:
        """Compare files with records, as at a start, and go on for *seconds*."""
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_cdi_files, self.ledger, self.cdi)
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
