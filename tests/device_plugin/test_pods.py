"""Chips in the hands of pods: the list of pods says who has them, and when they are taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import NodeOnDisk, claim, result
from tests.claims.restarted import prepare
from tests.device_plugin.instance import (
    NEIGHBOUR,
    OWN,
    OWN_NAMESPACE,
    Instance,
    Kubelet,
    chips,
    given,
)
from trio_npu_dra.agent.device_plugin.pods import LOOK_SECONDS, SOON_SECONDS


async def after_train(node: NodeOnDisk) -> tuple[Kubelet, Instance]:
    """The kubelet listed a pod with chip 1, which the driver saw, and does not list it any more."""
    kubelet = Kubelet(devices=given("train", 1))
    instance = Instance(node, kubelet)
    await instance.pods.refresh()
    kubelet.devices = []
    return kubelet, instance


async def test_the_list_of_pods_says_who_has_what(node: NodeOnDisk) -> None:
    """What we gave, and what Huawei's plugin gave; not what is no chip of this node."""
    kubelet = Kubelet(devices=given("train", 1) + given("old", 7) + given("far", 99))
    kubelet.devices += given("other", 5, resource="example.com/gpu")
    instance = Instance(node, kubelet)
    await instance.plugin.allocate([["Ascend910-1"]])
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1": "ml/train", "npu-7": "ml/old"}
    assert instance.pods.known.value
    assert [one.id for one in instance.pods.given] == ["Ascend910-1", "Ascend910-7"]
    written = {path: path.stat().st_mtime_ns for path in node.records_folder.iterdir()}
    await instance.pods.refresh()
    assert written == {path: path.stat().st_mtime_ns for path in node.records_folder.iterdir()}


async def test_a_pod_is_known_by_a_resource_that_the_flag_names(node: NodeOnDisk) -> None:
    """Also after a reboot, when no record has it."""
    kubelet = Kubelet(devices=given("train", 1, resource="example.com/odd"))
    instance = Instance(node, kubelet, "all=example.com/odd")
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1": "ml/train"}


@pytest.mark.parametrize("text", ["", "all"])
async def test_a_pod_keeps_its_chip_in_a_resource_that_no_flag_names_any_more(
    node: NodeOnDisk, autojump_clock: MockClock, text: str
) -> None:
    """Also one without a process. After a reboot the kubelet does not start it again."""
    del autojump_clock
    resource = "example.com/odd"
    kubelet = Kubelet()
    plugin = Instance(node, kubelet, f"all={resource}").plugin_of(resource)
    plugin.offer([replace(one, resource=resource) for one in chips()])
    await plugin.allocate([["odd-1"]])
    kubelet.devices = given("train", 1, resource=resource)
    instance = Instance(node, kubelet, text)
    await instance.look_until_sure()
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
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1": "a pod of a device plugin"}
    kubelet.while_answered = trio.lowlevel.checkpoint
    kubelet.devices = given("next", 1)
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1": "ml/next"}


async def test_a_chip_is_taken_back_when_its_pod_has_ended(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Two lists lack it, and no process uses it."""
    del autojump_clock
    kubelet, instance = await after_train(node)
    await instance.pods.refresh()
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1": "ml/train"}
    kubelet.busy = {"/dev/davinci1"}
    await trio.sleep(SOON_SECONDS)
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1": "ml/train"}
    assert instance.freed == set()
    kubelet.busy = set()
    await instance.pods.refresh()
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
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1": "ml/train"}
    assert instance.ledger.unreadable == {"pod-of-npu-2"}
    kubelet.others = {OWN}
    kubelet.busy = {"/dev/davinci2"}
    await instance.look_until_sure()
    assert instance.ledger.unreadable == {"pod-of-npu-2"}
    kubelet.busy = set()
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1": "ml/train"}
    assert instance.ledger.unreadable == set()
    assert not [*node.records_folder.glob("pod-of-npu-2*")]


async def test_the_record_of_a_pod_that_cannot_be_read_guards_its_chip(node: NodeOnDisk) -> None:
    """Its name says which; claims are refused, and pods are for the kubelet to tell apart."""
    await Instance(node, Kubelet()).plugin.allocate([["Ascend910-1"]])
    (node.records_folder / "pod-of-npu-1.json").write_text("broken")
    node.source.store(claim("a", result("npu-1")), claim("b", result("npu-2")))

    assert await prepare(node, "a", "b") == {
        "a": "device npu-1 may be in use by a pod of a device plugin, whose record pod-of-npu-1 on "
        "the node cannot be read, until the kubelet says that it has ended",
        "b": "",
    }
    await Instance(node, Kubelet(), shares=2).plugin.allocate([["Ascend910-1-0"]])


@pytest.mark.parametrize("trouble", ["away", "not whole", "with a namesake", "with a neighbour"])
async def test_a_kubelet_that_restarts_has_as_long_again_to_list_a_pod(
    node: NodeOnDisk, autojump_clock: MockClock, trouble: str
) -> None:
    """It adds its pods one after the other, the oldest first, and that may be ours."""
    del autojump_clock
    kubelet, instance = await after_train(node)
    await instance.pods.refresh()
    await trio.sleep(SOON_SECONDS)
    kubelet.is_away = trouble == "away"
    others = {"with a namesake": {OWN}, "with a neighbour": {NEIGHBOUR}}
    kubelet.others = others.get(trouble, set())
    if trouble == "with a namesake":  # anybody may have a pod of our pod's name
        kubelet.namespace_of_own = "ml"
    await instance.pods.refresh()
    kubelet.is_away, kubelet.others = False, {OWN}
    kubelet.namespace_of_own = OWN_NAMESPACE
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1": "ml/train"}
    await instance.look_until_sure()
    assert await instance.held() == {}


async def test_a_list_that_was_asked_for_before_an_allocation_does_not_lack_it(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The seconds begin with the first list that could have had it."""
    del autojump_clock
    kubelet = Kubelet()
    instance = Instance(node, kubelet)

    async def give() -> None:
        kubelet.while_answered = trio.lowlevel.checkpoint
        await instance.plugin.allocate([["Ascend910-1"]])

    kubelet.while_answered = give
    await instance.pods.refresh()
    await trio.sleep(SOON_SECONDS)
    await instance.pods.refresh()
    assert (await instance.held()).keys() == {"npu-1"}


async def test_a_kubelet_that_is_away_is_said_once(
    node: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it is back, it is not known which chips are free."""
    kubelet = Kubelet(is_away=True)
    instance = Instance(node, kubelet)
    for _ in range(3):
        await instance.pods.refresh()
    assert not instance.pods.known.value
    assert len(caplog.records) == 1
    kubelet.is_away = False
    await instance.pods.refresh()
    assert instance.pods.known.value


async def test_the_list_is_read_seldom_unless_something_depends_on_it(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Soon after an allocation or a failure, and while a chip is to be free or to move."""
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

        async def is_soon() -> bool:
            await trio.sleep(LOOK_SECONDS)
            asked = kubelet.asked
            await trio.sleep(10 * SOON_SECONDS)
            return kubelet.asked >= asked + 9

        kubelet.is_away = True
        assert await is_soon()
        kubelet.is_away = False
        assert not await is_soon()
        kubelet.devices, kubelet.busy = [], {"/dev/davinci1"}  # its pod has ended
        assert await is_soon()
        kubelet.busy.clear()
        assert not await is_soon()
        kubelet.devices = given("old", 5)  # a chip that is for the pool
        assert await is_soon()
        nursery.cancel_scope.cancel()
