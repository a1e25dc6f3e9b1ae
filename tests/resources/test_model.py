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
from tests.resources.test_allocation import RESOURCE, Instance, Kubelet, with_ids
from trio_npu_dra.errors import AllocationRefused
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.device import ResourceDevice
from trio_npu_dra.resources.division import pool_offers, resource_devices
from trio_npu_dra.resources.names import DeviceId, parse_id
from trio_npu_dra.resources.pods import SOON_SECONDS
from trio_npu_dra.resources.selection import Selection

CHIPS = 3
FLAGS = (("", 1), ("all", 1), ("0", 1), ("1-2", 1), ("all", 3), ("0-1", 2))
EVERYTHING = frozenset(f"/dev/davinci{number}" for number in range(CHIPS))

Act = tuple[str, Any]
Flag = tuple[str, int]
"""What `--device-plugin` and `--device-plugin-shares` say."""


@st.composite
def acts(draw: st.DrawFn) -> Act:
    """Something that somebody does."""
    kinds = ["claim", "unclaim", "share", "unshare", "pod", "end", "look", "kill", "reboot"]
    kind = draw(st.sampled_from(kinds))
    if kind == "kill":
        return kind, draw(st.sampled_from(FLAGS))
    if kind in {"pod", "end"}:
        return kind, draw(st.integers(0, 7))
    return kind, draw(st.integers(0, CHIPS - 1))


@dataclass
class World:
    """A node, its kubelet, its scheduler, and the driver.

    Attributes:
        claims: The chips that running pods have by claims.
        shares: The shares that they have by claims: chip and number.
        pods: The ids of devices that they have by the resource.
    """

    node: NodeOnDisk
    flag: Flag = ("", 1)
    kubelet: Kubelet = field(default_factory=Kubelet)
    claims: set[int] = field(default_factory=set)
    shares: set[tuple[int, int]] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.start(self.flag)

    def start(self, flag: Flag) -> None:
        """Start the driver, after the last one was killed or updated."""
        self.flag = flag
        text, shares = flag
        self.selection = Selection.parse(text, shares=shares)
        self.instance = Instance(self.node, self.kubelet, text, shares=shares)
        self.driver = self.node.start(
            ledger=self.instance.ledger, steps=[self.instance.step], patience=AT_ONCE
        )

    async def offered(self) -> tuple[set[int], Sequence[ResourceDevice]]:
        """The chips that scheduler and kubelet may give out: in the pool, and in the resource."""
        await self.instance.held()
        holds = self.instance.ledger.holds.value
        pool = pool_offers(self.node.board.value, holds, self.selection)
        devices = resource_devices(
            self.node.board.value,
            holds,
            self.selection,
            given=self.instance.pods.given,
            unused=EVERYTHING,
        ).get(RESOURCE, ())
        self.instance.plugin.offer(devices)
        return {chip.physical_id for offer in pool for chip in offer.chips}, devices

    async def do(self, act: Act) -> None:
        """Let it happen."""
        kind, number = act
        pool, resource = await self.offered()
        assert pool.isdisjoint(one.chip.physical_id for one in resource)
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
        elif kind == "pod" and (free := [one.id for one in resource if one.id not in self.pods]):
            await self.give(free[number % len(free)])
        elif kind == "end" and self.pods:
            self.pods.discard(sorted(self.pods)[number % len(self.pods)])
        elif kind == "kill":
            self.start(number)
        elif kind == "reboot":
            await self.reboot()
        await self.look() if kind == "look" else None
        self.kubelet.devices = with_ids("train", *sorted(self.pods))
        assert self.claims.isdisjoint(self.of_pods | self.shared), act
        assert self.shared.isdisjoint(self.of_pods), act
        assert self.shared | self.shared_by_pods <= self.instance.flags.on, act
        whole = {told.physical_id for told in self.told if told.share is None}
        assert whole.isdisjoint(self.shared_by_pods), act

    @property
    def shared(self) -> set[int]:
        """The chips of which a claim has a share."""
        return {number for number, _ in self.shares}

    @property
    def told(self) -> list[DeviceId]:
        """What pods have by the resource."""
        return [told for id_ in self.pods if (told := parse_id(RESOURCE, id_))]

    @property
    def of_pods(self) -> set[int]:
        """The chips of which they have something."""
        return {told.physical_id for told in self.told}

    @property
    def shared_by_pods(self) -> set[int]:
        """Those of which they have shares."""
        return {told.physical_id for told in self.told if told.share is not None}

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

    async def give(self, id_: str) -> None:
        """A pod gets a device by the resource; not both a chip and a share of it."""
        with suppress(AllocationRefused):
            await self.instance.plugin.allocate([[id_]])
            self.pods.add(id_)

    async def reboot(self) -> None:
        """The node starts anew, and no container has outlived that."""
        self.node.reboot()
        self.claims.clear()
        self.shares.clear()  # the kubelet prepares them again; devices of pods it remembers
        self.start(self.flag)
        await self.look()  # before anything is offered

    async def look(self) -> None:
        """The driver looks at the list of pods."""
        self.kubelet.devices = with_ids("train", *sorted(self.pods))
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
        wanted = {
            chip.physical_id
            for chip in self.node.board.value.chips
            if self.selection.resource_of(chip) is not None
        }
        pool, resource = await self.offered()
        assert pool == set(range(CHIPS)) - wanted
        assert {one.chip.physical_id for one in resource} == wanted
        assert len(resource) == len(wanted) * self.selection.shares
        assert self.node.record_uids() == set()
        await self.instance.repair.look(is_first=False)
        assert (self.instance.flags.on, self.instance.noted) == (set(), False)


@settings(max_examples=40)
@given(st.sampled_from(FLAGS), st.lists(acts(), max_size=25))
def test_no_chip_is_given_twice_and_all_come_back(flag: Flag, history: Sequence[Act]) -> None:
    """Whatever happens, in whatever order."""

    async def live() -> None:
        with TemporaryDirectory(prefix="npu-") as folder:
            node = NodeOnDisk(Path(folder) / "n", board=Observable(board(CHIPS)))
            world = World(node, flag)
            for act in history:
                await world.do(act)
            await world.end()

    trio.run(live, clock=MockClock(autojump_threshold=0))
