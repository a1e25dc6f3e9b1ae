"""Chips that somebody else than the kubelet chose: given, remembered, and never given twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.claims.node import NodeOnDisk, board, npu
from tests.full_disk import no_file_beyond
from tests.reliability.disk import Disk
from tests.report.boards import fault
from tests.report.boards import npu as sick_npu
from tests.resources.instance import RESOURCE, Instance, Kubelet
from tests.resources.instance import given as pod_devices
from trio_npu_dra.errors import AllocationRefused
from trio_npu_dra.npu.model import Chip
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.chooser import Chosen
from trio_npu_dra.resources.device import ResourceDevice
from trio_npu_dra.resources.kubelet_ids import FILE, KubeletIds
from trio_npu_dra.resources.names import DeviceId

CHIPS = 4


def ids(*numbers: int) -> list[str]:
    """Device ids."""
    return [f"Ascend910-{number}" for number in numbers]


def choice(pod: str, *numbers: int) -> Chosen:
    """What was chosen for a pod."""
    return Chosen(namespace="ml", pod=pod, uid=f"uid-{pod}", numbers=numbers)


def whole(chip: Chip) -> ResourceDevice:
    """A chip as a device."""
    return ResourceDevice(resource=RESOURCE, chip=chip)


@dataclass
class Scheduler:
    """Chooses chips for pods; remembers what they were told to have."""

    chosen: list[Chosen] = field(default_factory=list)
    told: dict[str, Sequence[str]] = field(default_factory=dict)

    async def choices(self, resource: str, ids: Sequence[str]) -> Sequence[Chosen]:
        """Those for so many."""
        await trio.lowlevel.checkpoint()
        assert resource == RESOURCE
        return [each for each in self.chosen if len(each.numbers) == len(ids)]

    def given(self, chosen: Chosen, resource: str, ids: Sequence[str]) -> None:
        """Its pod has got them."""
        assert resource == RESOURCE
        self.chosen.remove(chosen)
        self.told[chosen.pod] = ids

    async def keep(self) -> NoReturn:
        """Wait."""
        await trio.sleep_forever()
        raise AssertionError


@pytest.fixture
def node(tmp_path: Path) -> NodeOnDisk:
    """A node with eight NPUs."""
    return NodeOnDisk(tmp_path / "n")


def start(node: NodeOnDisk, kubelet: Kubelet, scheduler: Scheduler) -> Instance:
    """Start the driver."""
    return Instance(node, kubelet, chooser=scheduler)


async def test_a_pod_gets_what_was_chosen_for_it(node: NodeOnDisk) -> None:
    """The kubelet's ids stand for it from then on; the other chips have the ids that are left."""
    kubelet, scheduler = Kubelet(), Scheduler([choice("train", 5, 1)])
    instance = start(node, kubelet, scheduler)
    names = await instance.plugin.allocate([ids(0, 1)])
    assert names == [[f"npu.huawei.com/device={id_}" for id_ in ids(5, 1)]]
    assert await instance.held() == {"npu-1": "ml/train", "npu-5": "ml/train"}
    assert scheduler.told == {"train": ids(0, 1)}

    names = await instance.plugin.allocate([ids(5)])
    assert names == [["npu.huawei.com/device=Ascend910-0"]]
    for number in (1, 2):  # after a restart, and after a reboot
        if number == 2:
            node.reboot()
        kubelet.devices = pod_devices("train", 0, 1) + pod_devices("other", 5)
        instance = start(node, kubelet, scheduler)
        await instance.pods.look()
        assert await instance.held() == {
            "npu-0": "ml/other",
            "npu-1": "ml/train",
            "npu-5": "ml/train",
        }


async def test_health_is_told_of_the_chip_that_an_id_stands_for(node: NodeOnDisk) -> None:
    """The pod's own chip is sick, not the one whose id it has."""
    instance = start(node, Kubelet(), Scheduler([choice("train", 5)]))
    await instance.plugin.allocate([ids(0)])
    instance.plugin.offer([*map(whole, map(npu, range(5))), whole(sick_npu(5, fault()))])
    sick = [device.id for device in instance.plugin.devices.value if not device.healthy]
    assert sick == ids(0)


@pytest.mark.parametrize(
    ("numbers", "words"), [((6,), "not healthy"), ((7,), "is not there"), ((3,), "ml/old has one")]
)
async def test_what_cannot_be_given_is_refused(
    node: NodeOnDisk, numbers: tuple[int, ...], words: str
) -> None:
    """Not another chip instead: the scheduler has to choose again."""
    kubelet = Kubelet(devices=pod_devices("old", 3))
    instance = start(node, kubelet, Scheduler([choice("train", *numbers)]))
    instance.plugin.offer([*map(whole, map(npu, range(6))), whole(sick_npu(6, fault()))])
    await instance.pods.look()
    with pytest.raises(AllocationRefused, match=f"chosen for pod ml/train: .*{words}"):
        await instance.plugin.allocate([ids(0)])
    assert await instance.held() == {"npu-3": "ml/old"}


@pytest.mark.parametrize("number", [3, 6, 7])
async def test_a_pod_that_has_chips_keeps_nobody_from_theirs(node: NodeOnDisk, number: int) -> None:
    """Its owner can write on it that others were chosen for it, as long as it has not started."""
    kubelet = Kubelet(devices=pod_devices("old", 3) + pod_devices("forger", 1))
    scheduler = Scheduler([choice("forger", number), choice("train", 5)])
    instance = start(node, kubelet, scheduler)
    instance.plugin.offer([*map(whole, map(npu, range(6))), whole(sick_npu(6, fault()))])
    await instance.pods.look()
    await instance.plugin.allocate([ids(0)])
    assert (await instance.held())["npu-5"] == "ml/train"


async def test_a_chip_that_is_left_in_shares_is_not_given_for_a_whole_one(node: NodeOnDisk) -> None:
    """Shares of a flag of yesterday stay until their last pod has ended, as the kubelet sees it."""
    shares = Instance(node, Kubelet(), shares=4)
    await shares.plugin.allocate([["Ascend910-3-2"]])
    instance = start(node, Kubelet(), Scheduler([choice("train", 3)]))
    await instance.held()
    instance.plugin.offer([whole(npu(0)), replace(whole(npu(3)), share=2)])
    with pytest.raises(AllocationRefused, match=r"chosen for pod ml/train: .*is not there"):
        await instance.plugin.allocate([ids(0)])


async def test_a_chip_whose_pod_has_ended_can_be_chosen(node: NodeOnDisk) -> None:
    """The scheduler knows that before us; a list that may not be whole proves nothing."""
    kubelet = Kubelet(devices=pod_devices("old", 3))
    instance = start(node, kubelet, Scheduler([choice("train", 3)]))
    await instance.pods.look()
    kubelet.devices, kubelet.others = [], set()
    with pytest.raises(AllocationRefused, match="does not list all pods yet"):
        await instance.plugin.allocate([ids(0)])
    kubelet.others = {"ascend-npu-dra-kubeletplugin-x"}
    await instance.plugin.allocate([ids(0)])
    assert await instance.held() == {"npu-3": "ml/train"}


async def test_of_chips_that_the_kubelet_gives_nobody_is_asked(node: NodeOnDisk) -> None:
    """They are free, whatever we know of the pod that had them."""
    kubelet = Kubelet(devices=pod_devices("old", 3))
    instance = start(node, kubelet, Scheduler([choice("train", 3)]))
    await instance.pods.look()
    kubelet.is_away = True
    await instance.plugin.allocate([ids(3)])
    assert await instance.held() == {"npu-3": "ml/train"}


async def test_a_pod_that_has_its_chips_is_not_served_again(node: NodeOnDisk) -> None:
    """That could not be written on it before the driver died."""
    kubelet = Kubelet()
    instance = start(node, kubelet, Scheduler([choice("train", 5)]))
    await instance.plugin.allocate([ids(0)])
    kubelet.devices = pod_devices("train", 0)
    instance = start(node, kubelet, Scheduler([choice("train", 5), choice("next", 6)]))
    await instance.pods.look()  # before that nothing is served
    assert await instance.plugin.allocate([ids(1)]) == [["npu.huawei.com/device=Ascend910-6"]]
    kubelet.devices += pod_devices("next", 1)
    instance = start(node, kubelet, Scheduler([choice("train", 5)]))
    await instance.pods.look()
    assert await instance.plugin.allocate([ids(2)]) == [["npu.huawei.com/device=Ascend910-2"]]


async def test_a_death_at_any_moment_gives_nothing_twice(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Ids in use stand for what they stood for, and each id for one chip."""
    del autojump_clock
    node.cdi_root.mkdir()
    kubelet, scheduler = Kubelet(), Scheduler([choice("a", 5)])
    instance = start(node, kubelet, scheduler)
    await instance.plugin.allocate([ids(0)])
    kubelet.devices = pod_devices("a", 0)
    disk = Disk(node.state_folder, node.cdi_root)
    scheduler.chosen = [choice("b", 3, 6)]
    with disk.states() as states:
        await instance.plugin.allocate([ids(1, 2)])
    assert len(states) > 4
    for state in states:
        disk.restore(state)
        next_one = Instance(node, kubelet)
        await next_one.look_until_sure()
        assert await next_one.held() == {"npu-5": "ml/a"}
        meant = {next_one.pods.ids.device_of(RESOURCE, id_) for id_ in ids(*range(8))}
        assert meant == {DeviceId(physical_id=number) for number in range(8)}


@pytest.mark.parametrize("broken", ["{", "[]", '{"huawei.com/Ascend910": {"0": 1}}'])
def test_a_broken_file_is_said(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each id counts as the chip's own then."""
    (tmp_path / FILE).write_text(broken)
    found = KubeletIds(tmp_path)
    assert found.device_of(RESOURCE, "Ascend910-0") == DeviceId(physical_id=0)
    assert found.device_of(RESOURCE, "Ascend910-x") is None
    assert len(caplog.records) == 1
    found.change(RESOURCE, ids(0, 1), [1, 2])
    assert json.loads((tmp_path / FILE).read_text()) == {RESOURCE: {"0": 2, "2": 0}}
    found.change(RESOURCE, ids(0), [0])
    assert json.loads((tmp_path / FILE).read_text()) == {RESOURCE: {}}


async def test_a_full_disk_refuses(node: NodeOnDisk) -> None:
    """Each id stands for one chip all the same."""
    node.cdi_root.write_text("a file where the folder should be")
    scheduler = Scheduler([choice("train", 5)])
    instance = start(node, Kubelet(), scheduler)
    with pytest.raises(AllocationRefused, match="cdi"):
        await instance.plugin.allocate([ids(0)])
    node.cdi_root.unlink()
    assert await instance.plugin.allocate([ids(0)]) == [["npu.huawei.com/device=Ascend910-5"]]
    assert scheduler.chosen == []
    assert await instance.plugin.allocate([ids(5)]) == [["npu.huawei.com/device=Ascend910-0"]]


async def test_chips_whose_ids_cannot_be_noted_are_held_by_nobody(node: NodeOnDisk) -> None:
    """The record of a pod comes after what its ids stand for."""
    node.state_folder.mkdir()
    large = {str(number): number ^ 1 for number in range(2000)}
    (node.state_folder / FILE).write_text(json.dumps({"huawei.com/npu": large}))
    instance = start(node, Kubelet(), Scheduler([choice("train", 5)]))
    with no_file_beyond(10_000), pytest.raises(AllocationRefused, match=FILE):
        await instance.plugin.allocate([ids(0)])
    assert node.record_uids() == set()


async def test_ids_stand_for_their_chips_though_the_allocation_failed(node: NodeOnDisk) -> None:
    """They had changed before."""
    node.cdi_root.write_text("a file where the folder should be")
    scheduler = Scheduler([choice("train", 5)])
    instance = start(node, Kubelet(), scheduler)
    with pytest.raises(AllocationRefused, match="cdi"):
        await instance.plugin.allocate([ids(0)])
    node.cdi_root.unlink()
    scheduler.chosen.clear()
    assert await instance.plugin.allocate([ids(0)]) == [["npu.huawei.com/device=Ascend910-5"]]


# --- any history ---------------------------------------------------------------------------------


@dataclass
class World:
    """A kubelet that counts ids, a scheduler that counts chips, and the driver between them.

    Attributes:
        has: What each pod really has.
        known: The ids by which the kubelet knows that.
    """

    node: NodeOnDisk
    kubelet: Kubelet = field(default_factory=Kubelet)
    scheduler: Scheduler = field(default_factory=Scheduler)
    has: dict[str, set[int]] = field(default_factory=dict)
    known: dict[str, set[int]] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start the driver, after the last one was killed."""
        self.instance = start(self.node, self.kubelet, self.scheduler)
        self.instance.plugin.offer([whole(npu(number)) for number in range(CHIPS)])

    async def do(self, kind: str, number: int) -> None:
        """Let something happen."""
        if kind in {"chosen", "other"}:
            await self.give(number % 2 + 1, is_chosen=kind == "chosen")
        elif kind == "end" and self.has:
            pod = sorted(self.has)[number % len(self.has)]
            del self.has[pod], self.known[pod]
        elif kind == "kill":
            self.start()
        elif kind == "reboot":
            self.node.reboot()
            self.start()
        self.kubelet.devices = [
            device for pod, used in self.known.items() for device in pod_devices(pod, *used)
        ]
        if kind in {"look", "reboot"}:
            await self.look()

    async def give(self, count: int, *, is_chosen: bool) -> None:
        """A pod starts; the kubelet takes its last ids, the scheduler its last chips."""
        every = set(range(CHIPS))
        free_ids = sorted(every - {id_ for used in self.known.values() for id_ in used})
        free = sorted(every - {chip for used in self.has.values() for chip in used})
        assert len(free) == len(free_ids)
        if len(free) < count:
            return
        self.count += 1
        pod = f"pod-{self.count}"
        self.scheduler.chosen = [choice(pod, *free[-count:])] if is_chosen else []
        (names,) = await self.instance.plugin.allocate([ids(*free_ids[:count])])
        got = {int(name.rpartition("-")[2]) for name in names}
        assert got <= set(free)
        assert not is_chosen or got == set(free[-count:])
        self.has[pod], self.known[pod] = got, set(free_ids[:count])

    async def look(self) -> None:
        """All pods are known, and have what they were given."""
        await self.instance.look_until_sure()
        await self.instance.pods.look()
        held = await self.instance.held()
        assert held == {
            f"npu-{chip}": f"ml/{pod}" for pod, chips in self.has.items() for chip in chips
        }


ACTS = st.tuples(
    st.sampled_from(["chosen", "chosen", "other", "end", "look", "kill", "reboot"]),
    st.integers(0, 7),
)


@settings(max_examples=40)
@given(st.lists(ACTS, max_size=20))
def test_pods_have_what_they_were_given_whatever_happens(
    history: Sequence[tuple[str, int]],
) -> None:
    """Under restarts of driver and node, with pods of the scheduler and others."""

    async def live() -> None:
        with TemporaryDirectory(prefix="npu-") as folder:
            node = NodeOnDisk(Path(folder) / "n", board=Observable(board(CHIPS)))
            world = World(node)
            for kind, number in history:
                await world.do(kind, number)
            await world.look()

    trio.run(live, clock=MockClock(autojump_threshold=0))
