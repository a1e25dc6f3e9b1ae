"""Claims and pods take and give back chips in any order, under restarts and changes of the flag."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from dev.rig.boards import partition, split
from tests.claims.node import AT_ONCE, NodeOnDisk, board, claim, ref, result
from tests.device_plugin.instance import Instance, Kubelet
from trio_npu_dra.agent.device_plugin.assignment import elsewhere, resource_devices
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.device_plugin.names import is_huaweis
from trio_npu_dra.agent.device_plugin.pods import SOON_SECONDS
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.holds.availability import pool_offers
from trio_npu_dra.agent.holds.hold import holds_of
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.ascend.offers import Held, Offer
from trio_npu_dra.kit.base.errors import AllocationRefused
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.device_plugin.pod_resources import PodDevice

CHIPS = 3
PARTITIONS = 2
FLAGS = (("", 1), ("all", 1), ("0", 1), ("1-2=example.com/odd", 1), ("all", 3), ("0-1", 2))
EVERYTHING = frozenset(f"/dev/davinci{number}" for number in range(CHIPS))

Act = tuple[str, Any]
Flag = tuple[str, int]
"""What `--device-plugin` and `--device-plugin-shares` say."""


@st.composite
def acts(draw: st.DrawFn) -> Act:
    """An act of a user, the kubelet or the driver."""
    kinds = ["claim", "share", "release", "pod", "end", "cut", "look", "kill", "reboot"]
    kind = draw(st.sampled_from(kinds))
    return kind, draw(st.sampled_from(FLAGS) if kind == "kill" else st.integers(0, 7))


def cut(chip: Chip) -> Chip:
    """The chip as an administrator cuts it, or makes it whole again."""
    if chip.vnpus:
        return replace(chip, vnpus=(), vdevices=())
    ids = (100 + 16 * chip.physical_id + number for number in range(PARTITIONS))
    return split(chip, *(partition(id_, "vir05_1c_8g") for id_ in ids))


@dataclass(frozen=True, slots=True)
class Part:
    """A held chip, or a share or a partition of it."""

    chip: int
    share: str | None = None
    partition: int | None = None

    def excludes(self, other: Part) -> bool:
        """Whether two cannot both be had."""
        if self.chip != other.chip:
            return False
        if None not in {self.share, other.share}:
            return self.share == other.share
        return None in {self.partition, other.partition} or self.partition == other.partition


@dataclass
class World:
    """A node, its kubelet, its scheduler, and the driver.

    Attributes:
        claims: What running pods have by claims, by the claims' names.
        pods: What they have by resources.
    """

    node: NodeOnDisk
    flag: Flag = ("", 1)
    kubelet: Kubelet = field(default_factory=Kubelet)
    claims: dict[str, Part] = field(default_factory=dict)
    pods: dict[PodDevice, Part] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        for vnpu in range(100, 100 + 16 * CHIPS):
            (self.node.root / f"dev/vdavinci{vnpu}").symlink_to("/dev/null")
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

    async def offered(self) -> tuple[Sequence[Offer], Sequence[ResourceDevice]]:
        """What scheduler and kubelet may give out: in the pool, and in the resources."""
        await self.instance.held()
        holds = self.instance.ledger.holds.value
        board = self.node.board.value
        pool = pool_offers(board, holds, elsewhere=elsewhere(board, self.selection))
        devices = resource_devices(
            self.node.board.value,
            holds,
            self.selection,
            given=self.instance.pods.given,
            unused=EVERYTHING,
        )
        return pool, [one for some in devices.values() for one in some]

    async def do(self, act: Act) -> None:
        """Let it happen."""
        kind, number = act
        pool, devices = await self.offered()
        chips = {chip.physical_id for offer in pool for chip in offer.chips}
        assert chips.isdisjoint(one.chip.physical_id for one in devices)
        if kind in {"claim", "share"} and pool:
            await self.claim(pool[number % len(pool)], is_share=kind == "share")
        elif kind == "release" and self.claims:
            name = sorted(self.claims)[number % len(self.claims)]
            await self.driver.unprepare([ref(name)])
            del self.claims[name]
        elif kind == "pod" and devices:
            await self.give(devices[number % len(devices)])
        elif kind == "end" and self.pods:
            del self.pods[list(self.pods)[number % len(self.pods)]]
        elif kind == "cut":
            self.cut(number % CHIPS)
        elif kind == "kill":
            self.start(number)
        elif kind == "reboot":
            await self.reboot()
        elif kind == "look":
            await self.look()
        self.kubelet.devices = list(self.pods)
        self.check()

    def check(self) -> None:
        """No two holders exclude each other, and shared chips have their share flag."""
        every = [*self.claims.values(), *self.pods.values()]
        for index, one in enumerate(every):
            assert not any(one.excludes(other) for other in every[:index])
        by_claims, by_pods = (
            {part.chip for part in parts if part.partition is None}
            for parts in (self.claims.values(), self.pods.values())
        )
        assert by_claims.isdisjoint(by_pods)
        assert {part.chip for part in every if part.share is not None} <= self.instance.flags.on

    async def claim(self, offer: Offer, *, is_share: bool) -> None:
        """A claim gets an offer, or a share of it; the scheduler knows what claims have."""
        share = f"share-{self.count}" if is_share and offer.partition is None else None
        part = Part(
            offer.chips[0].physical_id, share, offer.partition.vnpu if offer.partition else None
        )
        is_taken = any(part.excludes(other) for other in self.claims.values())
        if is_taken or (offer.held is Held.BY_SHARES and share is None):
            return
        name = f"c{self.count}"
        self.count += 1
        self.node.source.store(claim(name, result(offer.name, share_id=share)))
        answer = await self.driver.prepare([ref(name)])
        if not answer[f"uid-{name}"].error:
            self.claims[name] = part

    async def give(self, device: ResourceDevice) -> None:
        """A pod gets a device; the kubelet knows what pods have."""
        vnpu = device.partition.vnpu if device.partition else None
        share = None if device.share is None else str(device.share)
        one = PodDevice(
            namespace="ml",
            pod="train",
            container="main",
            resource=device.resource,
            id=device.id,
        )
        if one in self.pods:
            return
        plugin = self.instance.plugin_of(device.resource)
        plugin.offer([device])
        with suppress(AllocationRefused):
            await plugin.allocate([[device.id]])
            self.pods[one] = Part(device.chip.physical_id, share, vnpu)

    def cut(self, number: int) -> None:
        """A free chip is split or made whole manually, as the kernel allows."""
        used = {part.chip for part in (*self.claims.values(), *self.pods.values())}
        if number not in used:
            now = self.node.board.value
            chips = [cut(one) if one.physical_id == number else one for one in now.chips]
            self.node.board.set(replace(now, chips=tuple(chips)))

    async def reboot(self) -> None:
        """The node restarts, and no container outlives that."""
        self.node.reboot()
        self.claims.clear()  # the kubelet prepares them again; devices of pods it remembers
        for one in list(self.pods):  # those that a plugin has; else the pod does not start again
            if not (is_huaweis(one.resource) or self.selection.names(one.resource)):
                del self.pods[one]
        self.start(self.flag)
        await self.look()  # before anything is offered

    async def look(self) -> None:
        """The driver looks at the list of pods."""
        self.kubelet.devices = list(self.pods)
        await self.instance.pods.refresh()
        await trio.sleep(SOON_SECONDS)

    async def end(self) -> None:
        """All pods end, and each chip is where it belongs soon after."""
        for _ in range(len(self.claims)):
            await self.do(("release", 0))
        for _ in range(2):
            await self.look()
        assert len(await self.instance.held()) == len(self.pods)
        self.pods.clear()
        for _ in range(2):
            await self.look()
        pool, devices = await self.offered()
        here: list[int] = []
        there: list[int] = []
        for chip in self.node.board.value.chips:
            is_there = self.selection.resource_of(chip) is not None
            parts = len(chip.vnpus) or (self.selection.shares if is_there else 1)
            (there if is_there else here).extend([chip.physical_id] * parts)
        assert [chip.physical_id for offer in pool for chip in offer.chips] == here
        assert sorted(one.chip.physical_id for one in devices) == there
        assert not holds_of(EVERYTHING, self.instance.ledger.holds.value)
        assert self.node.record_uids() == set()
        await self.instance.repair.reconcile(is_first=False)
        assert (self.instance.flags.on, self.instance.noted) == (set(), False)


@settings(max_examples=30)
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
