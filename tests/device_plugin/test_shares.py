"""Chips that pods share: each pod has a share, and the chip's share flag is set meanwhile."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import AT_ONCE, NodeOnDisk, claim, ref, result
from tests.claims.test_cancelled import cancelled_at
from tests.device_plugin.instance import Instance, Kubelet, with_ids
from tests.reliability.disk import Disk
from trio_npu_dra.agent.device_plugin.pods import SOON_SECONDS
from trio_npu_dra.agent.holds.entry import EntryState
from trio_npu_dra.kit.base.errors import AllocationRefused

SHARES = 4


@pytest.fixture
def kubelet() -> Kubelet:
    """No pod has anything."""
    return Kubelet()


def started(node: NodeOnDisk, kubelet: Kubelet) -> Instance:
    """A driver that gives each chip to four pods."""
    return Instance(node, kubelet, shares=SHARES)


def share(chip: int, number: int) -> str:
    """The id of a share."""
    return f"Ascend910-{chip}-{number}"


async def test_a_chip_is_shared_from_the_first_pod_to_the_last(
    node: NodeOnDisk, kubelet: Kubelet, autojump_clock: MockClock
) -> None:
    """The flag goes with the last share; each pod has a record of its own."""
    del autojump_clock
    instance = started(node, kubelet)
    names = await instance.plugin.allocate([[share(2, 0)]])
    assert names == [["npu.huawei.com/device=Ascend910-2"]]
    assert instance.flags.on == {2}
    assert [one.state for one in instance.ledger.by_uid.values()] == [EntryState.READY]
    await instance.plugin.allocate([[share(2, 3)]])
    kubelet.devices = with_ids("a", share(2, 0)) + with_ids("b", share(2, 3))
    await instance.look_until_sure()
    assert await instance.held() == {"npu-2-0": "ml/a", "npu-2-3": "ml/b"}

    kubelet.devices = with_ids("b", share(2, 3))
    kubelet.busy = {"/dev/davinci2"}  # by b
    await instance.look_until_sure()
    assert await instance.held() == {"npu-2-3": "ml/b"}
    assert instance.flags.on == {2}
    assert instance.freed == set()

    kubelet.devices = []
    await instance.look_until_sure()
    assert await instance.held() == {"npu-2-3": "ml/b"}
    kubelet.busy = set()
    await instance.pods.refresh()
    assert await instance.held() == {}
    assert instance.flags.on == set()
    assert instance.flags.changes == [(2, True), (2, False)]
    assert instance.freed == {"/dev/davinci2"}
    assert not instance.noted


async def test_a_pod_may_have_several_shares(node: NodeOnDisk, kubelet: Kubelet) -> None:
    """Its container gets each chip once."""
    instance = started(node, kubelet)
    names = await instance.plugin.allocate([[share(1, 0), share(1, 1), share(5, 0)]])
    assert names == [[f"npu.huawei.com/device=Ascend910-{chip}" for chip in (1, 5)]]
    assert instance.flags.on == {1, 5}
    assert (await instance.held()).keys() == {"npu-1-0", "npu-1-1", "npu-5-0"}
    spec = json.loads(node.cdi().devices_path.read_bytes())
    assert [device["name"] for device in spec["devices"]][:2] == ["Ascend910-0", "Ascend910-1"]


async def test_a_chip_in_use_is_not_shared_and_the_pod_is_told_who_uses_it(
    node: NodeOnDisk, kubelet: Kubelet, autojump_clock: MockClock
) -> None:
    """What was noted is taken back; the repair of claims leaves it alone."""
    del autojump_clock
    chips = [replace(chip, device_share=False) for chip in node.board.value.chips]
    node.board.set(replace(node.board.value, chips=tuple(chips)))
    instance = started(node, kubelet)
    instance.flags.used_by[2] = (4711,)
    with pytest.raises(AllocationRefused, match="while nobody uses it, and it is in use by proc"):
        await instance.plugin.allocate([[share(2, 0)]])
    instance.flags.used_by.clear()
    await instance.repair.reconcile(is_first=True)
    assert (await instance.held()).keys() == {"npu-2-0"}
    assert instance.flags.changes == []
    await instance.look_until_sure()
    assert await instance.held() == {}
    assert not instance.noted


async def test_a_flag_that_cannot_be_reset_keeps_the_share(
    node: NodeOnDisk, kubelet: Kubelet, autojump_clock: MockClock
) -> None:
    """And nothing is taken back that is given out again meanwhile."""
    del autojump_clock
    instance = started(node, kubelet)
    await instance.plugin.allocate([[share(2, 0)]])
    instance.flags.used_by[2] = (4711,)
    await instance.look_until_sure()
    await instance.pods.refresh()
    await instance.repair.reconcile(is_first=False)
    assert (await instance.held()).keys() == {"npu-2-0"}
    assert instance.flags.on == {2}

    await instance.plugin.allocate([[share(2, 0)]])
    instance.flags.used_by.clear()
    kubelet.devices = with_ids("a", share(2, 0))
    await instance.look_until_sure()
    assert await instance.held() == {"npu-2-0": "ml/a"}
    assert instance.flags.on == {2}


async def test_a_share_that_is_given_again_while_its_flag_goes_is_kept(
    node: NodeOnDisk, kubelet: Kubelet, autojump_clock: MockClock
) -> None:
    """At each moment of taking it back."""
    del autojump_clock
    instance = started(node, kubelet)
    moment, was_early = 1, True
    while was_early:
        await instance.plugin.allocate([[share(2, 0)]])
        await instance.pods.refresh()
        await trio.sleep(SOON_SECONDS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(instance.pods.refresh)
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            was_early = bool(nursery.child_tasks)
            await instance.plugin.allocate([[share(2, 0)]])
        assert (await instance.held()).keys() == {"npu-2-0"}
        assert instance.flags.on == {2}
        moment += 1
    assert moment > 5


@pytest.mark.parametrize("is_given", [True, False])
async def test_a_share_that_changes_while_its_processes_are_sought_is_left_alone(
    node: NodeOnDisk, kubelet: Kubelet, autojump_clock: MockClock, is_given: bool
) -> None:
    """It is given out again, or was taken back."""
    del autojump_clock
    instance = started(node, kubelet)
    await instance.plugin.allocate([[share(2, 0)]])
    await instance.pods.refresh()
    await trio.sleep(SOON_SECONDS)

    async def act() -> None:
        kubelet.while_asked = trio.lowlevel.checkpoint
        if is_given:
            await instance.plugin.allocate([[share(2, 0)]])
            return
        async with instance.ledger.exclusive():
            instance.ledger.remove("pod-of-npu-2-0")

    kubelet.while_asked = act
    await instance.pods.refresh()
    assert (await instance.held()).keys() == ({"npu-2-0"} if is_given else set())
    assert instance.flags.on == {2}


async def test_the_list_says_nothing_of_a_share_that_is_being_given(
    node: NodeOnDisk, kubelet: Kubelet, autojump_clock: MockClock
) -> None:
    """It was read before, and may even know the pod that had it last."""
    del autojump_clock
    instance = started(node, kubelet)
    kubelet.devices = with_ids("old", share(2, 0))
    with instance.pods.allocating(["pod-of-npu-2-0"]):
        await instance.look_until_sure()
        assert await instance.held() == {}


async def test_shares_of_huaweis_plugin_are_known(node: NodeOnDisk, kubelet: Kubelet) -> None:
    """Also those that a driver without shares finds; each is taken back by itself."""
    kubelet.devices = with_ids("a", share(1, 0)) + with_ids("b", share(1, 77))
    instance = Instance(node, kubelet)
    await instance.pods.refresh()
    assert await instance.held() == {"npu-1-0": "ml/a", "npu-1-77": "ml/b"}


async def test_flags_are_set_again_for_pods_that_a_reboot_brings_back(
    node: NodeOnDisk, kubelet: Kubelet
) -> None:
    """The kubelet remembers what they have, and asks for nothing."""
    await started(node, kubelet).plugin.allocate([[share(2, 0)]])
    node.reboot()
    (node.root / "flags" / "2").unlink()
    chips = [replace(chip, device_share=False) for chip in node.board.value.chips]
    node.board.set(replace(node.board.value, chips=tuple(chips)))
    kubelet.devices = with_ids("a", share(2, 0))
    instance = started(node, kubelet)
    await instance.pods.refresh()
    await instance.step.tidy()
    assert instance.flags.on == {2}


async def test_a_death_at_any_moment_leaves_nothing_for_long(
    node: NodeOnDisk, kubelet: Kubelet, autojump_clock: MockClock
) -> None:
    """Neither a share nor a flag, whether it was given or taken back just then."""
    del autojump_clock
    for folder in (node.state_folder, node.cdi_root, node.root / "flags"):
        folder.mkdir()
    disk = Disk(node.state_folder, node.cdi_root, node.root / "flags")
    instance = started(node, kubelet)
    with disk.states() as states:
        await instance.plugin.allocate([[share(1, 0), share(2, 0)]])
        await instance.look_until_sure()
    assert not instance.flags.on
    assert len(states) > 12
    node.source.store(claim("a", result("npu-1"), result("npu-2", "other")))
    for state in states:
        disk.restore(state)
        next_one = started(node, kubelet)
        await next_one.look_until_sure()
        await next_one.repair.reconcile(is_first=True)
        assert await next_one.held() == {}
        assert (next_one.flags.on, next_one.noted) == (set(), False)
        claims = node.start(ledger=next_one.ledger, patience=AT_ONCE)
        assert (await claims.prepare([ref("a")]))["uid-a"].error == ""


@pytest.mark.parametrize("is_allocate", [True, False])
async def test_a_call_can_be_cancelled_at_each_checkpoint(
    node: NodeOnDisk, kubelet: Kubelet, is_allocate: bool, autojump_clock: MockClock
) -> None:
    """Or a look; the next ones take back what is left, and what the list has is kept."""
    del autojump_clock
    step, goes_on = 1, True
    while goes_on:
        instance = started(node, kubelet)
        act: Callable[[], Awaitable[object]] = partial(instance.plugin.allocate, [[share(2, 0)]])
        if not is_allocate:
            await instance.plugin.allocate([[share(2, 0)]])
            await instance.pods.refresh()
            await trio.sleep(SOON_SECONDS)
            act = instance.pods.refresh
        goes_on = await cancelled_at(step, act)
        assert instance.flags.on <= {2}
        await instance.look_until_sure()
        assert await instance.held() == {}
        await instance.repair.reconcile(is_first=False)
        assert (instance.flags.on, instance.noted) == (set(), False)
        step += 1
    assert step > 5
