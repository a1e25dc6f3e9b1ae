"""Chips in the hands of pods: given, named, and kept from others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from dev.rig.boards import partition, split
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, npu, ref, result
from tests.device_plugin.instance import RESOURCE, Instance, Kubelet, chips, with_ids
from tests.holds.entries import of_partition
from trio_npu_dra.agent.claims.repair import Repair
from trio_npu_dra.agent.device_plugin.assignment import partitions_of
from trio_npu_dra.agent.device_plugin.cdi_file import devices_before
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.holds.entry import EntryState
from trio_npu_dra.agent.holds.hold import conflict
from trio_npu_dra.kit.base.errors import AllocationRefused
from trio_npu_dra.kit.kubelet.device_plugin.plugin import Choice, PluginDevice


async def test_an_allocation_is_held_before_it_is_answered(node: NodeOnDisk) -> None:
    """Each container gets the names of its own, and the CDI file has them."""
    instance = Instance(node, Kubelet())
    names = await instance.plugin.allocate([["Ascend910-1"], ["Ascend910-3"]])
    assert names == [["npu.huawei.com/device=Ascend910-1"], ["npu.huawei.com/device=Ascend910-3"]]
    unknown = "a pod of a device plugin"
    assert await instance.held() == {"npu-1": unknown, "npu-3": unknown}
    states = {entry.state for entry in instance.ledger.by_uid.values()}
    assert states == {EntryState.READY}
    spec = json.loads((node.cdi_root / "npu.huawei.com-device.json").read_bytes())
    assert [device["name"] for device in spec["devices"]][3] == "Ascend910-3"
    assert await Instance(node, Kubelet()).held() == {"npu-1": unknown, "npu-3": unknown}


async def test_nothing_is_given_to_a_claim_and_to_a_pod(node: NodeOnDisk) -> None:
    """The first holder keeps it; an allocation is refused as a whole."""
    instance = Instance(node, Kubelet())
    node.source.store(claim("a", result("npu-1")), claim("b", result("npu-2")))
    claims = node.start(ledger=instance.ledger, patience=AT_ONCE)
    await claims.prepare([ref("a")])
    with pytest.raises(AllocationRefused, match="npu-1 is held by claim default/a"):
        await instance.plugin.allocate([["Ascend910-2", "Ascend910-1"]])
    assert await instance.held() == {}

    await instance.plugin.allocate([["Ascend910-2"]])
    error = (await claims.prepare([ref("b")]))["uid-b"].error
    assert error == "device npu-2 is held by a pod of a device plugin until it has ended"
    assert [one.id for one in instance.pods.given] == ["Ascend910-2"]
    await claims.unprepare([ref("a")])
    await instance.plugin.allocate([["Ascend910-1"]])


async def test_nothing_is_given_while_the_host_lacks_what_containers_need(node: NodeOnDisk) -> None:
    """The pod hears which file; nothing of it is recorded, and the CDI file stays."""
    instance = Instance(node, Kubelet())
    await instance.plugin.allocate([["Ascend910-1"]])
    file = node.cdi_root / "npu.huawei.com-device.json"
    before = file.read_bytes()
    for path in ("dev/hisi_hdc", "host/usr/local/Ascend/driver"):
        (node.root / path).rename(node.root / "away")
        with pytest.raises(AllocationRefused, match=f"/{path.removeprefix('host/')}.* is missing"):
            await instance.plugin.allocate([["Ascend910-2"]])
        instance.file.keep({one.cdi_name: one.held for one in chips()})
        assert file.read_bytes() == before
        (node.root / "away").rename(node.root / path)
    assert {*await instance.held()} == {"npu-1"}
    (node.root / "host/usr/local/Ascend/driver/version.info").touch()
    instance.file.keep({one.cdi_name: one.held for one in chips()})
    assert b"version.info" in file.read_bytes()


async def test_a_claim_whose_record_cannot_be_read_keeps_its_chip(node: NodeOnDisk) -> None:
    """Its CDI file says what it has."""
    node.source.store(claim("a", result("npu-1")))
    await node.start().prepare([ref("a")])
    (node.records_folder / "uid-a.json").write_text("broken")
    with pytest.raises(AllocationRefused, match="may be in use by the claim with UID uid-a"):
        await Instance(node, Kubelet()).plugin.allocate([["Ascend910-1"]])


async def test_a_pod_gets_a_vnpu_alone(node: NodeOnDisk, autojump_clock: MockClock) -> None:
    """Other pods can have the vNPUs beside it; no claim gets it, and no pod the chip."""
    del autojump_clock
    cut = split(npu(1), partition(116, "vir05_1c_8g"), partition(117, "vir05_1c_8g"))
    node.board.set(replace(node.board.value, chips=(npu(0), cut)))
    kubelet = Kubelet()
    instance = Instance(node, kubelet)
    resource = f"{RESOURCE}-5c.1cpu.8g"
    plugin, offered = instance.plugin_of(resource), partitions_of(node.board.value, cut, RESOURCE)
    plugin.offer(offered)
    ids = ["Ascend910-5c.1cpu.8g-116-1", "Ascend910-5c.1cpu.8g-117-1"]
    assert [one.id for one in plugin.devices.value] == ids
    assert await plugin.prefer(Choice(available=tuple(ids), needed=(), size=1)) == (ids[0],)
    assert await plugin.allocate([ids[:1]]) == [[f"npu.huawei.com/device={ids[0]}"]]
    (nodes,) = (dict(one.held.nodes) for one in offered[:1])
    assert nodes == {"/dev/davinci116": "/dev/vdavinci116"}

    with pytest.raises(AllocationRefused, match="which has npu-1-vnpu-116, until it has"):
        await instance.plugin.allocate([["Ascend910-1"]])
    claimed, *_ = of_partition("c", 116, number=1).holds
    assert conflict(claimed, instance.ledger.holds.value)
    await plugin.allocate([ids[1:]])

    kubelet.devices = with_ids("train", ids[1], resource=resource)
    kubelet.busy = {"/dev/vdavinci117", "/dev/davinci1"}
    await instance.look_until_sure()
    assert await instance.held() == {"npu-1-vnpu-117": "ml/train"}
    kubelet.devices, kubelet.busy = [], {"/dev/davinci1"}
    await instance.look_until_sure()
    assert (await instance.held(), instance.freed) == ({}, set())


async def test_an_allocation_waits_for_the_last_pods_processes(
    node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """The kubelet gives the devices of a pod away when the pod is deleted by force."""
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
    """Its pod gets the message; other pods get their devices."""
    del autojump_clock
    instance = Instance(node, Kubelet(busy={"/dev/davinci1"}))
    with pytest.raises(AllocationRefused, match=r"^npu-1 is still in use after 5 s: "):
        await instance.plugin.allocate([["Ascend910-0", "Ascend910-1"]])
    await instance.plugin.allocate([["Ascend910-2"]])
    assert (await instance.held()).keys() == {"npu-2"}


def test_the_kubelet_hears_where_devices_are_and_which_are_unfit(node: NodeOnDisk) -> None:
    """For its Topology Manager, and for what it counts as allocatable."""
    plugin = Instance(node, Kubelet()).plugin
    near, unfit = replace(npu(0), numa_node=1), replace(npu(1), gone=True)
    plugin.offer([ResourceDevice(resource=RESOURCE, chip=chip) for chip in (near, unfit)])
    assert plugin.devices.value == (
        PluginDevice(id="Ascend910-0", healthy=True, numa_node=1),
        PluginDevice(id="Ascend910-1", healthy=False),
    )


async def test_an_unknown_device_is_refused(node: NodeOnDisk) -> None:
    """The kubelet may not have the newest list yet."""
    instance = Instance(node, Kubelet())
    instance.plugin.offer(chips(1))
    with pytest.raises(AllocationRefused, match=r"Ascend910-1 is no device .* has Ascend910-0\)"):
        await instance.plugin.allocate([["Ascend910-1"]])
    assert await instance.plugin.prefer(Choice(available=("Ascend910-0",), needed=(), size=1)) == (
        "Ascend910-0",
    )


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


def test_a_file_that_cannot_be_written_is_said_once_and_written_later(
    node: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Without devices there is none."""
    file = Instance(node, Kubelet()).file
    devices = {one.cdi_name: one.held for one in chips(1)}
    for count in (1, 2):
        node.cdi_root.write_text("a file where the folder should be")
        for _ in range(2):
            file.keep(devices)
        assert [one.levelname for one in caplog.records] == ["ERROR"] * count
        node.cdi_root.unlink()
        file.keep(devices)
        (path,) = node.cdi_root.iterdir()
        assert path.stat().st_mode & 0o777 == 0o644
        file.keep({})
        node.cdi_root.rmdir()


async def test_pods_get_no_cdi_file_of_a_claim(node: NodeOnDisk) -> None:
    """The repair leaves their records alone."""
    instance = Instance(node, Kubelet())
    await instance.plugin.allocate([["Ascend910-1"]])
    for is_first in (True, False):
        await Repair(instance.ledger, node.cdi()).reconcile(is_first=is_first)
    assert [path.name for path in node.cdi_root.iterdir()] == ["npu.huawei.com-device.json"]
