"""Chips in the hands of pods: given, named, and taken back."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.claims.flags import FlagFiles
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, npu, ref, result
from tests.holds.entries import holder, of_piece
from tests.npu.boards import piece, split
from tests.reliability.disk import Disk
from trio_npu_dra.claims.repair import Repair
from trio_npu_dra.claims.share_flag import ShareFlagStep
from trio_npu_dra.errors import AllocationRefused, KubeletSilent
from trio_npu_dra.holds.hold import HolderKind, conflict
from trio_npu_dra.kubelet.device_plugin.plugin import Choice
from trio_npu_dra.kubelet.device_plugin.pod_resources import PodDevice, PodResources
from trio_npu_dra.resources.allocation import ResourcePlugin, Tools
from trio_npu_dra.resources.cdi_file import DevicesFile, devices_before
from trio_npu_dra.resources.chooser import Chooser
from trio_npu_dra.resources.device import ResourceDevice
from trio_npu_dra.resources.division import pieces_of
from trio_npu_dra.resources.pods import LOOK_SECONDS, SOON_SECONDS, PodHolds, PodList
from trio_npu_dra.resources.selection import Selection

RESOURCE = "huawei.com/Ascend910"
OWN = "ascend-npu-dra-kubeletplugin-x"


def given(pod: str, *numbers: int, resource: str = RESOURCE) -> list[PodDevice]:
    """What a pod has."""
    last = resource.partition("/")[2]
    return with_ids(pod, *(f"{last}-{number}" for number in numbers), resource=resource)


def with_ids(pod: str, *ids: str, resource: str = RESOURCE) -> list[PodDevice]:
    """A pod that has devices, by their ids."""
    return [PodDevice(namespace="ml", pod=pod, resource=resource, id=id_) for id_ in ids]


def chips(count: int = 8) -> list[ResourceDevice]:
    """The devices of a resource of whole chips."""
    return [ResourceDevice(resource=RESOURCE, chip=npu(number)) for number in range(count)]


@dataclass
class Kubelet:
    """Its list of pods, or why there is none; and which chips processes use."""

    devices: list[PodDevice] = field(default_factory=list)
    others: set[str] = field(default_factory=lambda: {OWN})
    is_away: bool = False
    busy: set[str] = field(default_factory=set)
    asked: int = 0
    while_asked: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    while_answered: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint

    async def read(self) -> PodResources:
        """Answer."""
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.is_away:
            raise KubeletSilent("the kubelet does not list pods on /x: refused")
        names = self.others | {one.pod for one in self.devices}
        listed = PodResources(
            pods=frozenset(("ml", name) for name in names), devices=tuple(self.devices)
        )
        await self.while_answered()
        return listed

    async def is_busy(self, nodes: Collection[str]) -> bool:
        """Whether a process uses one of them."""
        await self.while_asked()
        return not self.busy.isdisjoint(nodes)


class Instance:
    """A driver instance with a device plugin on the node."""

    def __init__(
        self,
        node: NodeOnDisk,
        kubelet: Kubelet,
        text: str = "all",
        *,
        shares: int = 1,
        chooser: Chooser | None = None,
    ) -> None:
        self.node = node
        self.chooser = chooser
        self.ledger = node.ledger()
        self.flags = FlagFiles(node.root / "flags", node.board)
        self.step = ShareFlagStep(self.ledger, node.cdi(), node.board, self.flags)
        self.repair = Repair(self.ledger, node.cdi(), [self.step])
        self.file = DevicesFile(node.cdi())
        self.freed: set[str] = set()
        self.pods = PodHolds(
            ledger=self.ledger,
            board=node.board,
            selection=Selection.parse(text, shares=shares),
            pods=PodList(read=kubelet.read, own_pod=OWN),
            is_busy=kubelet.is_busy,
            flags=self.step,
            on_free=self.freed.update,
        )
        self.plugin = self.plugin_of(RESOURCE)
        self.plugin.offer(chips())
        if shares > 1:
            self.plugin.offer(
                [replace(one, share=share) for one in chips() for share in range(shares)]
            )

    def plugin_of(self, resource: str) -> ResourcePlugin:
        """What serves a resource."""
        tools = Tools(
            ledger=self.ledger,
            pods=self.pods,
            cdi=self.node.cdi(),
            file=self.file,
            write_file=lambda: self.file.write({one.cdi_name: one.held for one in chips()}),
            flags=self.step,
            chooser=self.chooser,
        )
        return ResourcePlugin(resource, tools)

    @property
    def noted(self) -> bool:
        """Whether the driver remembers that it has set a share flag."""
        return (self.node.state_folder / "share-flags.json").exists()

    async def held(self) -> dict[str, str]:
        """Who has what, by chip."""
        async with self.ledger.exclusive():
            pass
        return {
            entry.uid.removeprefix("pod-of-"): str(entry)
            for entry in self.ledger.by_uid.values()
            if entry.holder.kind is HolderKind.POD
        }


@pytest.fixture
def node(tmp_path: Path) -> NodeOnDisk:
    """A node with eight NPUs."""
    return NodeOnDisk(tmp_path / "n")


async def test_an_allocation_is_held_before_it_is_answered(node: NodeOnDisk) -> None:
    """Each container gets the names of its own, and the CDI file has them."""
    instance = Instance(node, Kubelet())
    names = await instance.plugin.allocate([["Ascend910-1"], ["Ascend910-3"]])
    assert names == [["npu.huawei.com/device=Ascend910-1"], ["npu.huawei.com/device=Ascend910-3"]]
    unknown = "a pod of a device plugin"
    assert await instance.held() == {"npu-1": unknown, "npu-3": unknown}
    spec = json.loads((node.cdi_root / "npu.huawei.com-device.json").read_bytes())
    assert [device["name"] for device in spec["devices"]][3] == "Ascend910-3"
    assert await Instance(node, Kubelet()).held() == {"npu-1": unknown, "npu-3": unknown}


async def test_nothing_is_given_to_a_claim_and_to_a_pod(node: NodeOnDisk) -> None:
    """Whoever was first has it; all of an allocation is refused or nothing."""
    instance = Instance(node, Kubelet())
    node.source.store(claim("a", result("npu-1")), claim("b", result("npu-2")))
    claims = node.start(patience=AT_ONCE)
    await claims.prepare([ref("a")])
    with pytest.raises(AllocationRefused, match="npu-1 is held by claim default/a"):
        await instance.plugin.allocate([["Ascend910-2", "Ascend910-1"]])
    assert await instance.held() == {}

    await instance.plugin.allocate([["Ascend910-2"]])
    error = (await claims.prepare([ref("b")]))["uid-b"].error
    assert error == "device npu-2 is held by a pod of a device plugin until it has ended"
    await claims.unprepare([ref("a")])
    await instance.plugin.allocate([["Ascend910-1"]])


async def test_shares_and_pieces_of_claims_keep_a_chip_from_pods(node: NodeOnDisk) -> None:
    """And a pod keeps all of its chip from them."""
    instance = Instance(node, Kubelet())
    shares = [claim(f"s{number}", result(f"npu-{number}", share_id="a-b")) for number in (1, 2)]
    node.source.store(*shares)
    claims = node.start(patience=AT_ONCE)
    assert not (await claims.prepare([ref("s1")]))["uid-s1"].error
    async with instance.ledger.exclusive():
        instance.ledger.put(of_piece("p", 100, number=3))
    for number in (1, 3):
        with pytest.raises(AllocationRefused, match=f"npu-{number} is held by claim default/"):
            await instance.plugin.allocate([[f"Ascend910-{number}"]])

    await instance.plugin.allocate([["Ascend910-2"]])
    error = (await claims.prepare([ref("s2")]))["uid-s2"].error
    assert error == "device npu-2 is held by a pod of a device plugin until it has ended"
    (share,) = replace(chips()[2], share=0).entry().holds
    assert conflict(share, [replace(share, holder=holder("c"), share="7")])
    assert not conflict(share, [replace(chips()[2], share=7).entry().holds[0]])
    claimed, *_ = of_piece("q", 101, number=2).holds
    assert conflict(claimed, instance.ledger.holds.value)


async def test_a_claim_whose_record_cannot_be_read_keeps_its_chip(node: NodeOnDisk) -> None:
    """Its CDI file says what it has."""
    node.source.store(claim("a", result("npu-1")))
    await node.start().prepare([ref("a")])
    (node.records_folder / "uid-a.json").write_text("broken")
    with pytest.raises(AllocationRefused, match="may be in use by the claim with UID uid-a"):
        await Instance(node, Kubelet()).plugin.allocate([["Ascend910-1"]])


async def test_a_pod_gets_a_vnpu_alone(node: NodeOnDisk, autojump_clock: MockClock) -> None:
    """Others can have those beside it, but neither a claim that piece, nor anybody the chip."""
    del autojump_clock
    cut = split(npu(1), piece(116, "vir05_1c_8g"), piece(117, "vir05_1c_8g"))
    node.board.set(replace(node.board.value, chips=(npu(0), cut)))
    kubelet = Kubelet()
    instance = Instance(node, kubelet)
    resource = f"{RESOURCE}-5c.1cpu.8g"
    plugin, offered = instance.plugin_of(resource), pieces_of(node.board.value, cut, RESOURCE)
    plugin.offer(offered)
    ids = ["Ascend910-5c.1cpu.8g-116-1", "Ascend910-5c.1cpu.8g-117-1"]
    assert [one.id for one in plugin.devices.value] == ids
    assert plugin.prefer(Choice(available=tuple(ids), needed=(), size=1)) == (ids[0],)
    assert await plugin.allocate([ids[:1]]) == [[f"npu.huawei.com/device={ids[0]}"]]
    (nodes,) = (dict(one.held.nodes) for one in offered[:1])
    assert nodes == {"/dev/davinci116": "/dev/vdavinci116"}

    with pytest.raises(AllocationRefused, match="which has npu-1-vnpu-116, until it has"):
        await instance.plugin.allocate([["Ascend910-1"]])
    claimed, *_ = of_piece("c", 116, number=1).holds
    assert conflict(claimed, instance.ledger.holds.value)
    await plugin.allocate([ids[1:]])

    kubelet.devices = with_ids("train", ids[1], resource=resource)
    kubelet.busy = {"/dev/vdavinci117", "/dev/davinci1"}
    for _ in range(2):
        await instance.pods.look()
        await trio.sleep(SOON_SECONDS)
    assert await instance.held() == {"npu-1-vnpu-117": "ml/train"}


async def test_an_allocation_waits_for_the_last_pods_processes(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The kubelet gives away at once what a pod has that is deleted by force."""
    del autojump_clock
    kubelet = Kubelet(busy={"/dev/davinci1"})
    instance = Instance(node, kubelet)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(instance.plugin.allocate, [["Ascend910-0", "Ascend910-1"]])
        await trio.sleep(2)
        assert await instance.held() == {}
        kubelet.busy.clear()
    assert (await instance.held()).keys() == {"npu-0", "npu-1"}


async def test_what_a_process_goes_on_using_is_refused(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Its pod is told; others get theirs."""
    del autojump_clock
    instance = Instance(node, Kubelet(busy={"/dev/davinci1"}))
    with pytest.raises(AllocationRefused, match=r"^npu-1 is still in use after 5 s: "):
        await instance.plugin.allocate([["Ascend910-0", "Ascend910-1"]])
    await instance.plugin.allocate([["Ascend910-2"]])
    assert (await instance.held()).keys() == {"npu-2"}


async def test_an_unknown_device_is_refused(node: NodeOnDisk) -> None:
    """The kubelet may not have the newest list yet."""
    instance = Instance(node, Kubelet())
    instance.plugin.offer(chips(1))
    with pytest.raises(AllocationRefused, match=r"Ascend910-1 is no device .* has Ascend910-0\)"):
        await instance.plugin.allocate([["Ascend910-1"]])
    assert instance.plugin.prefer(Choice(available=("Ascend910-0",), needed=(), size=1)) == (
        "Ascend910-0",
    )


async def test_a_full_disk_refuses(node: NodeOnDisk) -> None:
    """The pod hears why."""
    node.cdi_root.write_text("a file where the folder should be")
    with pytest.raises(AllocationRefused, match="cdi"):
        await Instance(node, Kubelet()).plugin.allocate([["Ascend910-1"]])


async def test_a_death_at_any_moment_of_an_allocation_leaves_nothing_for_long(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The pod fails, because the kubelet got no answer; what was noted of it is taken back."""
    del autojump_clock
    node.cdi_root.mkdir()
    disk = Disk(node.state_folder, node.cdi_root)
    instance = Instance(node, Kubelet())
    with disk.states() as states:
        await instance.plugin.allocate([["Ascend910-1", "Ascend910-2"]])
    assert len(states) > 4
    node.source.store(claim("a", result("npu-1"), result("npu-2", "other")))
    for state in states:
        disk.restore(state)
        next_one = Instance(node, Kubelet())
        for _ in range(2):
            await next_one.pods.look()
            await trio.sleep(SOON_SECONDS)
        assert await next_one.held() == {}
        claims = node.start(ledger=next_one.ledger, patience=AT_ONCE)
        assert (await claims.prepare([ref("a")]))["uid-a"].error == ""
        assert next_one.ledger.unreadable == frozenset()


async def test_a_file_says_what_was_in_resources(node: NodeOnDisk) -> None:
    """One that cannot be read says nothing."""
    assert devices_before(node.cdi()) == {}
    await Instance(node, Kubelet()).plugin.allocate([["Ascend910-1"]])
    assert devices_before(node.cdi()) == {number: (f"Ascend910-{number}",) for number in range(8)}
    for broken in ("{", "[]", '{"devices": 5}', '{"devices": [{"name": 1}, {"name": "x"}]}'):
        node.cdi().devices_path.write_text(broken)
        assert devices_before(node.cdi()) == {}
    node.cdi().devices_path.unlink()
    node.cdi().devices_path.mkdir()
    assert devices_before(node.cdi()) == {}


async def test_pods_get_no_cdi_file_of_a_claim(node: NodeOnDisk) -> None:
    """The repair leaves their records alone."""
    instance = Instance(node, Kubelet())
    await instance.plugin.allocate([["Ascend910-1"]])
    for is_first in (True, False):
        await Repair(instance.ledger, node.cdi()).look(is_first=is_first)
    assert [path.name for path in node.cdi_root.iterdir()] == ["npu.huawei.com-device.json"]


async def test_the_list_of_pods_says_who_has_what(node: NodeOnDisk) -> None:
    """What we gave, and what Huawei's plugin gave; not what is no chip of this node."""
    kubelet = Kubelet(devices=given("train", 1) + given("old", 7) + given("far", 99))
    kubelet.devices += given("other", 5, resource="example.com/gpu")
    instance = Instance(node, kubelet)
    await instance.plugin.allocate([["Ascend910-1"]])
    await instance.pods.look()
    assert await instance.held() == {"npu-1": "ml/train", "npu-7": "ml/old"}
    assert instance.pods.known.value
    assert [one.id for one in instance.pods.given] == ["Ascend910-1", "Ascend910-7"]


@pytest.mark.parametrize("text", ["", "all"])
@pytest.mark.parametrize("is_rebooted", [False, True])
async def test_a_pod_keeps_its_chip_in_a_resource_that_no_flag_names_any_more(
    node: NodeOnDisk, autojump_clock: MockClock, text: str, is_rebooted: bool
) -> None:
    """Also one without a process: the kubelet lists it, also after a reboot."""
    del autojump_clock
    resource = "example.com/odd"
    kubelet = Kubelet()
    plugin = Instance(node, kubelet, f"all={resource}").plugin_of(resource)
    plugin.offer([replace(one, resource=resource) for one in chips()])
    await plugin.allocate([["odd-1"]])
    kubelet.devices = given("train", 1, resource=resource)
    if is_rebooted:
        node.reboot()
    instance = Instance(node, kubelet, text)
    for _ in range(2):
        await instance.pods.look()
        await trio.sleep(SOON_SECONDS)
    assert await instance.held() == {"npu-1": "ml/train"}


async def test_a_list_that_was_read_before_an_allocation_says_nothing_of_it(
    node: NodeOnDisk,
) -> None:
    """It may know the pod that had the chip last."""
    kubelet = Kubelet(devices=given("old", 1))
    instance = Instance(node, kubelet)

    async def give() -> None:
        await instance.plugin.allocate([["Ascend910-1"]])

    kubelet.while_answered = give
    await instance.pods.look()
    assert await instance.held() == {"npu-1": "a pod of a device plugin"}
    kubelet.while_answered = trio.lowlevel.checkpoint
    kubelet.devices = given("next", 1)
    await instance.pods.look()
    assert await instance.held() == {"npu-1": "ml/next"}


async def test_a_chip_is_taken_back_when_its_pod_has_ended(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Two lists lack it, and no process uses it."""
    del autojump_clock
    kubelet = Kubelet(devices=given("train", 1))
    instance = Instance(node, kubelet)
    await instance.pods.look()
    kubelet.devices = []
    await instance.pods.look()
    await instance.pods.look()
    assert await instance.held() == {"npu-1": "ml/train"}
    kubelet.busy = {"/dev/davinci1"}
    await trio.sleep(SOON_SECONDS)
    await instance.pods.look()
    assert await instance.held() == {"npu-1": "ml/train"}
    assert instance.freed == set()
    kubelet.busy = set()
    await instance.pods.look()
    assert await instance.held() == {}
    assert instance.freed == {"/dev/davinci1"}


async def test_a_record_that_cannot_be_read_goes_with_its_pod(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The list says whether it runs; a list that is not whole says nothing."""
    del autojump_clock
    await Instance(node, Kubelet()).plugin.allocate([["Ascend910-1", "Ascend910-2"]])
    for number in (1, 2):
        (node.records_folder / f"pod-of-npu-{number}.json").write_text("broken")
    kubelet = Kubelet(devices=given("train", 1), others=set())
    instance = Instance(node, kubelet)
    await instance.pods.look()
    assert await instance.held() == {"npu-1": "ml/train"}
    assert instance.ledger.unreadable == {"pod-of-npu-2"}
    kubelet.others = {OWN}
    await instance.pods.look()
    assert await instance.held() == {"npu-1": "ml/train"}
    assert instance.ledger.unreadable == set()
    assert not [*node.records_folder.glob("pod-of-npu-2*")]


async def test_a_chip_that_is_given_again_while_it_is_looked_at_stays(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The list was read before."""
    del autojump_clock
    kubelet = Kubelet(devices=given("train", 1))
    instance = Instance(node, kubelet)
    await instance.pods.look()
    kubelet.devices = []
    await instance.pods.look()
    await trio.sleep(SOON_SECONDS)

    async def give_again() -> None:
        kubelet.while_asked = trio.lowlevel.checkpoint
        await instance.plugin.allocate([["Ascend910-1"]])

    kubelet.while_asked = give_again
    await instance.pods.look()
    assert await instance.held() == {"npu-1": "a pod of a device plugin"}


@pytest.mark.parametrize("trouble", ["away", "not whole", "given again"])
async def test_a_chip_stays_while_nobody_knows_that_its_pod_has_ended(
    node: NodeOnDisk, autojump_clock: MockClock, trouble: str
) -> None:
    """The kubelet is away, lists only a part of its pods, or gave it to another pod meanwhile."""
    del autojump_clock
    kubelet = Kubelet(devices=given("train", 1))
    instance = Instance(node, kubelet)
    await instance.pods.look()
    kubelet.devices = []
    if trouble == "not whole":
        kubelet.others = set()
    kubelet.is_away = trouble == "away"
    for _ in range(3):
        await instance.pods.look()
        assert (await instance.held()).keys() == {"npu-1"}
        if trouble == "given again":
            await instance.plugin.allocate([["Ascend910-1"]])
        await trio.sleep(SOON_SECONDS)


async def test_a_kubelet_that_is_away_is_said_once(
    node: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it is back, nobody can tell what is free."""
    kubelet = Kubelet(is_away=True)
    instance = Instance(node, kubelet)
    for _ in range(3):
        await instance.pods.look()
    assert not instance.pods.known.value
    assert len(caplog.records) == 1
    kubelet.is_away = False
    await instance.pods.look()
    assert instance.pods.known.value


async def test_the_list_is_read_seldom_unless_something_depends_on_it(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Soon after an allocation, and while a chip is to move."""
    del autojump_clock
    kubelet = Kubelet()
    instance = Instance(node, kubelet, text="0-3")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(instance.pods.keep)
        await trio.sleep(10 * LOOK_SECONDS + 1)
        assert kubelet.asked == 11

        await instance.plugin.allocate([["Ascend910-1"]])
        kubelet.devices = given("train", 1)
        await trio.sleep(SOON_SECONDS + 1)
        assert await instance.held() == {"npu-1": "ml/train"}
        asked = kubelet.asked
        await trio.sleep(10 * LOOK_SECONDS)
        assert kubelet.asked <= asked + 11

        kubelet.devices += given("old", 5)  # a chip that is for the pool
        await trio.sleep(LOOK_SECONDS)
        asked = kubelet.asked
        await trio.sleep(10 * SOON_SECONDS)
        assert kubelet.asked >= asked + 9
        nursery.cancel_scope.cancel()
