"""Chips that a scheduler has chosen: preferred, given, noted, and nothing else instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import pytest
import trio

from dev.site.unhealthy_boards import fault
from dev.site.unhealthy_boards import npu as unhealthy_npu
from tests.claims.node import NodeOnDisk, npu
from tests.device_plugin.instance import RESOURCE, Instance, Kubelet, ids
from tests.device_plugin.instance import given as pod_devices
from trio_npu_dra.agent.device_plugin.chooser import ChosenChips
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.kit.base.errors import AllocationRefused
from trio_npu_dra.kit.kubelet.device_plugin.plugin import Choice

EVERY = tuple(range(8))


def choice(pod: str, *numbers: int) -> ChosenChips:
    """What was chosen for a pod."""
    return ChosenChips(namespace="ml", pod=pod, uid=f"uid-{pod}", numbers=numbers)


def whole(chip: Chip) -> ResourceDevice:
    """A chip as a device."""
    return ResourceDevice(resource=RESOURCE, chip=chip)


@dataclass
class Scheduler:
    """Chooses chips for pods; remembers which of them it was told to have theirs."""

    chosen: list[ChosenChips] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    is_away: bool = False

    async def choices(self, resource: str, count: int) -> Sequence[ChosenChips]:
        """Those of pods that may have a container which wants so many."""
        await trio.lowlevel.checkpoint()
        assert resource == RESOURCE
        if self.is_away:
            raise AllocationRefused("no answer")
        return [each for each in self.chosen if len(each.numbers) >= count]

    def given(self, chosen: ChosenChips, resource: str) -> None:
        """Its pod has got them."""
        assert resource == RESOURCE
        self.chosen[self.chosen.index(chosen)] = replace(chosen, is_served=True)
        self.told.append(chosen.pod)

    async def keep(self) -> NoReturn:
        """Wait."""
        await trio.sleep_forever()
        raise AssertionError


async def admit(
    instance: Instance,
    size: int,
    *,
    available: Sequence[int] = EVERY,
    needed: Sequence[int] = (),
) -> list[str]:
    """Let a container start as the kubelet does: ask what is preferred, and take that."""
    asked = Choice(available=tuple(ids(*available)), needed=tuple(ids(*needed)), size=size)
    taken = await instance.plugin.prefer(asked)
    (names,) = await instance.plugin.allocate([taken])
    return [name.rpartition("=")[2] for name in names]


async def test_a_pod_gets_what_was_chosen_for_it(node: NodeOnDisk) -> None:
    """Its holder is known without delay; another pod gets the best of the rest."""
    scheduler = Scheduler([choice("train", 5, 1)])
    instance = Instance(node, Kubelet(), chooser=scheduler)
    assert await admit(instance, 2) == ids(1, 5)
    assert await instance.held() == {"npu-1": "ml/train", "npu-5": "ml/train"}
    assert scheduler.told == ["train"]
    assert await admit(instance, 1, available=(0, 2, 3, 4, 6, 7)) == ids(0)


async def test_chosen_chips_that_cannot_be_had_keep_no_other_pod_from_its_own(
    node: NodeOnDisk,
) -> None:
    """Of the choices that the kubelet can take the earliest is preferred."""
    scheduler = Scheduler([choice("late", 3), choice("next", 5)])
    instance = Instance(node, Kubelet(devices=pod_devices("old", 3)), chooser=scheduler)
    assert await admit(instance, 1, available=(0, 1, 2, 4, 5, 6, 7)) == ids(5)
    assert scheduler.told == ["next"]


async def test_the_chips_count_not_the_order_of_pods(node: NodeOnDisk) -> None:
    """Where the kubelet has no choice, it does not ask what is preferred."""
    scheduler = Scheduler([choice("first", 3), choice("second", 5)])
    instance = Instance(node, Kubelet(), chooser=scheduler)
    await instance.plugin.allocate([ids(5)])
    assert scheduler.told == ["second"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (6, "6 is not healthy"),
        (7, "7 is not in huawei.com/Ascend910"),
        (4, "4 is not in huawei.com/Ascend910"),
        (3, "3 is held by ml/old"),
        (5, "its Topology Manager wants these: set `topologyManagerPolicy: none`"),
    ],
)
async def test_others_than_the_chosen_ones_are_refused(
    node: NodeOnDisk, number: int, words: str
) -> None:
    """With the reason, and what to do: the scheduler has to choose again."""
    instance = Instance(
        node, Kubelet(devices=pod_devices("old", 3)), chooser=Scheduler([choice("train", number)])
    )
    chips = [*map(whole, map(npu, (0, 1, 2, 3, 5))), whole(unhealthy_npu(6, fault()))]
    instance.plugin.offer([*chips, replace(whole(npu(4)), share=2)])  # of a flag of yesterday
    with pytest.raises(AllocationRefused) as caught:
        await admit(instance, 1, available=(0, 1, 2))
    text = str(caught.value)
    assert text.startswith(f"NPUs {number} were chosen for pod ml/train, and the kubelet gives 0 (")
    assert words in text
    assert "delete the pod" in text
    assert await instance.held() == {"npu-3": "ml/old"}


@pytest.mark.parametrize("number", [3, 4, 6, 7])
async def test_a_pod_that_has_chips_waits_for_none(node: NodeOnDisk, number: int) -> None:
    """Its owner can write other chips on it, as long as it has not started."""
    kubelet = Kubelet(devices=pod_devices("old", 3) + pod_devices("forger", 1))
    scheduler = Scheduler([choice("forger", number), choice("train", 5)])
    instance = Instance(node, kubelet, chooser=scheduler)
    instance.plugin.offer([*map(whole, map(npu, range(6))), whole(unhealthy_npu(6, fault()))])
    assert await admit(instance, 1, available=(0, 2, 4, 5)) == ids(5)
    assert scheduler.told == ["train"]


async def test_chips_of_another_resource_are_not_what_a_pod_waits_for(node: NodeOnDisk) -> None:
    """It may want both."""
    kubelet = Kubelet(devices=pod_devices("train", 3, resource="huawei.com/npu"))
    scheduler = Scheduler([choice("train", 5)])
    instance = Instance(node, kubelet, chooser=scheduler)
    assert await admit(instance, 1) == ids(5)
    assert scheduler.told == ["train"]


async def test_a_new_pod_of_the_same_name_waits(node: NodeOnDisk) -> None:
    """Its chips of before are held until no process uses them; the list has it without any."""
    kubelet = Kubelet(devices=pod_devices("train", 3))
    scheduler = Scheduler()
    instance = Instance(node, kubelet, chooser=scheduler)
    await instance.pods.refresh()
    kubelet.devices, kubelet.others = [], {*kubelet.others, "train"}
    scheduler.chosen = [choice("train", 5)]
    assert await admit(instance, 1) == ids(5)
    assert scheduler.told == ["train"]


async def test_a_container_gets_what_the_init_container_of_its_pod_had(node: NodeOnDisk) -> None:
    """The kubelet gives it these ids without asking, whatever other pods wait for."""
    scheduler = Scheduler([choice("train", 5, 1), choice("next", 2, 3)])
    instance = Instance(node, Kubelet(), chooser=scheduler)
    assert await admit(instance, 2) == ids(1, 5)
    await instance.plugin.allocate([ids(1, 5)])
    await instance.plugin.allocate([ids(5)])
    assert scheduler.told == ["train"]


async def test_an_init_container_may_want_fewer(node: NodeOnDisk) -> None:
    """The kubelet gives its chips to the next one, and does not list who has them meanwhile."""
    scheduler = Scheduler([choice("train", 5, 1)])
    instance = Instance(node, Kubelet(), chooser=scheduler)
    (first,) = await admit(instance, 1)
    needed = [int(first[-1])]
    assert await admit(instance, 2, available=EVERY, needed=needed) == ids(1, 5)
    assert scheduler.told == ["train"]


async def test_each_container_of_a_pod_gets_some_of_what_was_chosen(node: NodeOnDisk) -> None:
    """The pod is told of when it has all of it."""
    kubelet, scheduler = Kubelet(), Scheduler([choice("train", 6, 7, 2, 3)])
    instance = Instance(node, kubelet, chooser=scheduler)
    assert await admit(instance, 2) == ids(2, 3)
    assert scheduler.told == []
    kubelet.devices = pod_devices("train", 2, 3)
    assert await admit(instance, 2, available=(0, 1, 4, 5, 6, 7)) == ids(6, 7)
    assert scheduler.told == ["train"]


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_chip_whose_pod_has_ended_can_be_chosen(node: NodeOnDisk, is_away: bool) -> None:
    """The kubelet knows before us that it is free, whether it says so or not."""
    kubelet = Kubelet(devices=pod_devices("old", 3))
    instance = Instance(node, kubelet, chooser=Scheduler([choice("train", 3)]))
    await instance.pods.refresh()
    kubelet.devices, kubelet.is_away = [], is_away
    assert await admit(instance, 1) == ids(3)
    assert await instance.held() == {"npu-3": "ml/train"}


async def test_no_pod_gets_chips_while_choices_are_not_known(node: NodeOnDisk) -> None:
    """They could be other chips than the chosen ones."""
    instance = Instance(node, Kubelet(), chooser=Scheduler(is_away=True))
    asked = Choice(available=tuple(ids(*EVERY)), needed=(), size=1)
    assert await instance.plugin.prefer(asked) == tuple(ids(0))
    with pytest.raises(AllocationRefused, match="no answer"):
        await instance.plugin.allocate([ids(0)])


async def test_chosen_chips_are_not_mixed_with_others(node: NodeOnDisk) -> None:
    """The kubelet must give a container what it names as needed: that is not the pod that waits."""
    instance = Instance(node, Kubelet(), chooser=Scheduler([choice("train", 5, 7)]))
    asked = Choice(available=tuple(ids(*EVERY)), needed=tuple(ids(1)), size=2)
    assert await instance.plugin.prefer(asked) == tuple(ids(0, 1))


async def test_the_kubelet_is_not_asked_while_it_waits_for_allocate(node: NodeOnDisk) -> None:
    """When it is asked then, it may forget that it has given the ids away."""
    kubelet = Kubelet(devices=pod_devices("forger", 1))
    instance = Instance(node, kubelet, chooser=Scheduler([choice("forger", 5), choice("train", 5)]))
    await instance.plugin.prefer(Choice(available=tuple(ids(*EVERY)), needed=(), size=1))
    asked = kubelet.asked
    assert asked
    await instance.plugin.allocate([ids(5)])
    assert kubelet.asked == asked
    assert await instance.held() == {"npu-1": "ml/forger", "npu-5": "ml/train"}


async def test_shares_are_given_whatever_was_chosen(node: NodeOnDisk) -> None:
    """Schedulers choose whole chips."""
    instance = Instance(node, Kubelet(), chooser=Scheduler([choice("train", 5)]))
    instance.plugin.offer([whole(npu(0)), replace(whole(npu(1)), share=0)])
    assert await instance.plugin.allocate([["Ascend910-0", "Ascend910-1-0"]])


async def test_who_holds_a_chosen_chip_may_not_be_known_yet(node: NodeOnDisk) -> None:
    """The pod itself is no reason."""
    scheduler = Scheduler()
    instance = Instance(node, Kubelet(), chooser=scheduler)
    await instance.plugin.allocate([ids(3)])
    scheduler.chosen = [choice("train", 2, 3)]
    await instance.plugin.allocate([ids(2)])
    with pytest.raises(AllocationRefused, match=r"the kubelet gives 0 \(3 is held by a pod\)"):
        await instance.plugin.allocate([ids(0)])


async def test_a_full_disk_refuses(node: NodeOnDisk) -> None:
    """The scheduler does not hear that the pod has its chips."""
    node.cdi_root.write_text("a file where the folder should be")
    scheduler = Scheduler([choice("train", 5)])
    instance = Instance(node, Kubelet(), chooser=scheduler)
    with pytest.raises(AllocationRefused, match="cdi"):
        await admit(instance, 1)
    assert scheduler.told == []
