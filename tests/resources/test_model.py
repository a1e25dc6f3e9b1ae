"""Claims and pods take and give back chips in any order, under restarts and changes of the flag."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.claims.node import AT_ONCE, NodeOnDisk, board, claim, ref, result
from tests.resources.test_allocation import RESOURCE, Instance, Kubelet
from tests.resources.test_allocation import given as pod_devices
from trio_npu_dra.errors import AllocationRefused
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.division import pool_offers, resource_chips
from trio_npu_dra.resources.pods import SOON_SECONDS, resource_of
from trio_npu_dra.resources.selection import Selection

CHIPS = 3
FLAGS = ("", "all", "0", "1-2")
EVERYTHING = frozenset(f"/dev/davinci{number}" for number in range(CHIPS))

Act = tuple[str, Any]


@st.composite
def acts(draw: st.DrawFn) -> Act:
    """Something that somebody does."""
    kinds = ["claim", "unclaim", "share", "unshare", "pod", "end", "look", "kill", "reboot"]
    kind = draw(st.sampled_from(kinds))
    if kind == "kill":
        return kind, draw(st.sampled_from(FLAGS))
    return kind, draw(st.integers(0, CHIPS - 1))


@dataclass
class World:
    """A node, its kubelet, its scheduler, and the driver.

    Attributes:
        claims: The chips that running pods have by claims.
        shares: The shares that they have by claims: chip and number.
        pods: Those that they have by the resource.
    """

    node: NodeOnDisk
    flag: str = ""
    kubelet: Kubelet = field(default_factory=Kubelet)
    claims: set[int] = field(default_factory=set)
    shares: set[tuple[int, int]] = field(default_factory=set)
    pods: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.start(self.flag)

    def start(self, flag: str) -> None:
        """Start the driver, after the last one was killed or updated."""
        self.flag = flag
        self.instance = Instance(self.node, self.kubelet, flag)
        self.driver = self.node.start(ledger=self.instance.ledger, patience=AT_ONCE)

    async def offered(self) -> tuple[set[int], set[int]]:
        """The chips that scheduler and kubelet may give out: in the pool, and in the resource."""
        await self.instance.held()
        holds = self.instance.ledger.holds.value
        selection = Selection.parse(self.flag)
        pool = pool_offers(self.node.board.value, holds, selection)
        entries = self.instance.pods.entries
        chips = resource_chips(
            self.node.board.value,
            holds,
            selection,
            held_as={node: resource_of(entry) for node, entry in entries.items()},
            unused=EVERYTHING,
        ).get(RESOURCE, ())
        self.instance.plugin.offer(chips)
        return (
            {chip.physical_id for offer in pool for chip in offer.chips},
            {chip.physical_id for chip in chips},
        )

    async def do(self, act: Act) -> None:
        """Let it happen."""
        kind, number = act
        pool, resource = await self.offered()
        assert pool.isdisjoint(resource)
        if kind == "claim" and number in pool - self.claims:
            self.node.source.store(claim(f"c{number}", result(f"npu-{number}")))
            answer = await self.driver.prepare([ref(f"c{number}")])
            if not answer[f"uid-c{number}"].error:
                self.claims.add(number)
        elif kind == "unclaim" and number in self.claims:
            await self.driver.unprepare([ref(f"c{number}")])
            self.claims.remove(number)
        elif kind == "share" and number in pool:
            await self.share(number)
        elif kind == "unshare" and number in self.shared:
            await self.unshare(number)
        elif kind == "pod" and number in resource - self.pods:
            await self.give(number)
        elif kind == "end":
            self.pods.discard(number)
        elif kind == "kill":
            self.start(number)
        elif kind == "reboot":
            await self.reboot()
        await self.look() if kind == "look" else None
        self.kubelet.devices = pod_devices("train", *sorted(self.pods))
        assert self.claims.isdisjoint(self.pods), act
        assert self.shared.isdisjoint(self.claims | self.pods), act

    @property
    def shared(self) -> set[int]:
        """The chips of which a claim has a share."""
        return {number for number, _ in self.shares}

    async def share(self, number: int) -> None:
        """A claim gets the next share of a chip."""
        name = f"s{number}-{sum(chip == number for chip, _ in self.shares)}"
        self.node.source.store(claim(name, result(f"npu-{number}", share_id=f"share-{name}")))
        answer = await self.driver.prepare([ref(name)])
        if not answer[f"uid-{name}"].error:
            self.shares.add((number, int(name.rpartition("-")[2])))

    async def unshare(self, number: int) -> None:
        """The claim with the last share of a chip is released."""
        one = max(share for share in self.shares if share[0] == number)
        await self.driver.unprepare([ref("s{}-{}".format(*one))])
        self.shares.remove(one)

    async def give(self, number: int) -> None:
        """A pod gets a chip by the resource."""
        with suppress(AllocationRefused):
            await self.instance.plugin.allocate([[f"Ascend910-{number}"]])
            self.pods.add(number)

    async def reboot(self) -> None:
        """The node starts anew, and no container has outlived that."""
        self.node.reboot()
        self.claims.clear()
        self.shares.clear()  # the kubelet prepares them again; devices of pods it remembers
        self.start(self.flag)
        await self.look()  # before anything is offered

    async def look(self) -> None:
        """The driver looks at the list of pods."""
        self.kubelet.devices = pod_devices("train", *sorted(self.pods))
        await self.instance.pods.look()
        await trio.sleep(SOON_SECONDS)

    async def end(self) -> None:
        """All pods end, and each chip is where it belongs soon after."""
        for number in sorted(self.claims):
            await self.do(("unclaim", number))
        for number, _ in sorted(self.shares):
            await self.do(("unshare", number))
        self.pods.clear()
        for _ in range(2):
            await self.look()
        selection = Selection.parse(self.flag)
        wanted = {
            chip.physical_id
            for chip in self.node.board.value.chips
            if selection.resource_of(chip) is not None
        }
        assert await self.offered() == (set(range(CHIPS)) - wanted, wanted)
        assert self.node.record_uids() == set()


@settings(max_examples=60)
@given(st.sampled_from(FLAGS), st.lists(acts(), max_size=25))
def test_no_chip_is_given_twice_and_all_come_back(flag: str, history: Sequence[Act]) -> None:
    """Whatever happens, in whatever order."""

    async def live() -> None:
        with TemporaryDirectory(prefix="npu-") as folder:
            node = NodeOnDisk(Path(folder) / "n", board=Observable(board(CHIPS)))
            world = World(node, flag)
            for act in history:
                await world.do(act)
            await world.end()

    trio.run(live, clock=MockClock(autojump_threshold=0))
