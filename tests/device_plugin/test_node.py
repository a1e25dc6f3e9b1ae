"""The whole daemon with chips in resources: real sockets, stand-ins for kubelet and API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from dev.rig.parts import Rig, served_rig
from dev.rig.waiting import until
from tests.device_plugin.instance import RESOURCE, ids
from tests.device_plugin.whole_daemon import allocated, in_file, pool, spec
from trio_npu_dra.agent import daemon
from trio_npu_dra.agent.device_plugin import allocation
from trio_npu_dra.kit.api.objects import ResourceSlice
from trio_npu_dra.kit.base.file_lock import FileLock
from trio_npu_dra.kit.grpc import RpcError
from trio_npu_dra.lab.simulator import Severity, load_profile

UNHEALTHY = 0x80E01801

pytestmark = pytest.mark.usefixtures("quick")


async def test_a_pod_gets_two_chips_by_cdi(rig: Rig) -> None:
    """From discovery over the list to a CDI file that has what a claim's containers would get."""
    rig.device_plugin = "all"
    async with rig.device_manager() as manager, rig.registered():
        await manager.wait_for(RESOURCE, *ids(*range(8)))
        chosen = await manager.preferred(RESOURCE, 2, available=ids(*range(8)))
        assert chosen == ids(0, 2)  # near one NUMA node
        assert await allocated(manager, "train", 0, 1) == [
            "npu.huawei.com/device=Ascend910-0",
            "npu.huawei.com/device=Ascend910-1",
        ]
        await until(lambda: bool(rig.api.all(ResourceSlice)))
        assert pool(rig) == []
    written = spec(rig)
    assert (written["kind"], in_file(rig)) == ("npu.huawei.com/device", ids(*range(8)))
    assert "ASCEND_VISIBLE_DEVICES=void" in written["containerEdits"]["env"]
    nodes = [node["path"] for node in written["containerEdits"]["deviceNodes"]]
    assert "/dev/davinci_manager" in nodes
    (node,) = written["devices"][1]["containerEdits"]["deviceNodes"]
    assert node["hostPath"] == "/dev/davinci1"


async def test_pods_share_a_chip(rig: Rig) -> None:
    """The daemon lets containers share it from the first pod to the last, over a restart."""
    rig.device_plugin, rig.device_plugin_shares = "0-1", 2
    every = [f"Ascend910-{chip}-{share}" for chip in (0, 1) for share in (0, 1)]
    note = rig.settings.plugin_directory / "share-flags.json"
    async with rig.device_manager() as manager:
        async with rig.daemon():
            await manager.wait_for(RESOURCE, *every)
            assert await manager.preferred(RESOURCE, 1, available=every[1:]) == [every[1]]
            for id_ in every[:2]:
                (names,) = await manager.allocate(RESOURCE, [id_])
                assert names == ["npu.huawei.com/device=Ascend910-0"]
                manager.pods["ml", id_] = {RESOURCE: [id_]}
            assert len(json.loads(note.read_bytes())["chips"]) == 1
            assert in_file(rig) == ids(0, 1)
        rig.device_plugin, rig.device_plugin_shares = "", 1
        async with rig.registered():
            await until(lambda: len(pool(rig)) == 7)
            del manager.pods["ml", every[0]]
            await until(lambda: len(rig.records) == 1)
            assert note.exists()
            manager.pods.clear()
            await until(lambda: len(pool(rig)) == 8)
            assert not note.exists()


async def test_a_chip_that_was_cut_by_hand_has_resources_for_its_vnpus(rig: Rig) -> None:
    """They come and go as it is cut; a pod keeps its own over a restart without the flag."""
    rig.device_plugin = "0-1"
    quarter, half = f"{RESOURCE}-5c.1cpu.8g", f"{RESOURCE}-10c.3cpu.16g"
    with rig.board.control() as control:
        control.create_vnpu(0, "vir05_1c_8g", 100)
        async with rig.device_manager() as manager:
            async with rig.daemon():
                await manager.wait_for(RESOURCE, *ids(1))
                await manager.wait_for(quarter, "Ascend910-5c.1cpu.8g-100-0")
                control.create_vnpu(0, "vir10_3c_16g", 101)
                await manager.wait_for(half, "Ascend910-10c.3cpu.16g-101-0")
                (names,) = await manager.allocate(quarter, ["Ascend910-5c.1cpu.8g-100-0"])
                assert names == ["npu.huawei.com/device=Ascend910-5c.1cpu.8g-100-0"]
                manager.pods["ml", "small"] = {quarter: ["Ascend910-5c.1cpu.8g-100-0"]}
                (device,) = (one for one in spec(rig)["devices"] if "-100-0" in one["name"])
                (node,) = device["containerEdits"]["deviceNodes"]
                assert (node["path"], node["hostPath"]) == ("/dev/davinci100", "/dev/vdavinci100")
                control.destroy_vnpu(0, 101)
                await manager.wait_for(half)
                await until(lambda: in_file(rig) == [*ids(1), "Ascend910-5c.1cpu.8g-100-0"])
            rig.device_plugin = ""
            async with rig.registered():
                await until(lambda: len(pool(rig)) == 7)
                assert "npu-0-vnpu-100" not in pool(rig)
                await until(lambda: in_file(rig) == ["Ascend910-5c.1cpu.8g-100-0"])
                control.use_vnpu(0, 100)
                manager.pods.clear()
                await trio.sleep(0.2)
                assert "npu-0-vnpu-100" not in pool(rig)
                control.use_vnpu(0, 100, in_use=False)
                await until(lambda: "npu-0-vnpu-100" in pool(rig))


async def test_chips_are_in_the_pool_or_in_a_resource(rig: Rig) -> None:
    """Four each way; a second resource has its own server."""
    rig.device_plugin = "0-1,3=example.com/odd"
    async with rig.device_manager() as manager, rig.registered():
        await manager.wait_for(RESOURCE, *ids(0, 1))
        await manager.wait_for("example.com/odd", "odd-3")
        await rig.published()
        assert pool(rig) == [f"npu-{number}" for number in (2, 4, 5, 6, 7)]
        with pytest.raises(RpcError, match="Ascend910-4 is no device of huawei"):
            await manager.allocate(RESOURCE, ids(4))


async def test_a_pod_keeps_its_chips_over_restarts_of_daemon_and_kubelet(rig: Rig) -> None:
    """Neither gives them to a claim, and a claim's chip is not given to a pod."""
    rig.device_plugin = "0-3"
    async with rig.device_manager() as manager, rig.registered() as kubelet:
        await manager.wait_for(RESOURCE, *ids(*range(4)))
        await allocated(manager, "train", 2)
        known = manager.pods
        claim = rig.claim("a", "npu-0")  # scheduled before chip 0 moved
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        with pytest.raises(RpcError, match="Ascend910-0 is no device of huawei"):
            await manager.allocate(RESOURCE, ids(0))
        await manager.wait_for(RESOURCE, *ids(1, 2, 3))

    rig.device_plugin = ""
    async with rig.registered():  # with the pool alone, and a kubelet that lists no pods yet
        await until(lambda: pool(rig) == [f"npu-{number}" for number in (0, 4, 5, 6, 7)])

    rig.device_plugin = "all"
    async with rig.device_manager() as manager, rig.daemon():
        manager.pods = known
        await manager.wait_for(RESOURCE, *ids(*range(1, 8)))
        assert "Ascend910-2" in in_file(rig)


async def test_a_chip_stays_in_its_resource_when_its_pod_has_ended(rig: Rig) -> None:
    """Also after a restart, when only the record has it: no list to the kubelet lacks it."""
    rig.device_plugin = "2-3"
    async with rig.device_manager() as manager:
        async with rig.daemon():
            await manager.wait_for(RESOURCE, *ids(2, 3))
            await allocated(manager, "train", 2)
        await manager.wait_for(RESOURCE)
        async with rig.daemon(), trio.open_nursery() as nursery:
            await manager.wait_for(RESOURCE, *ids(2, 3))
            seen = []

            async def look() -> None:
                async for known in manager.resources.changes():
                    seen.append(sorted(known[RESOURCE].allocatable))

            nursery.start_soon(look)
            manager.pods.clear()
            await until(lambda: not rig.records)
            with rig.board.control() as control:
                control.add_fault(3, UNHEALTHY, Severity.MAJOR)  # the next list
            await until(lambda: len(seen) > 1)
            assert seen == [ids(2, 3), ids(2)]
            nursery.cancel_scope.cancel()


async def test_pods_of_huaweis_plugin_hold_their_chips(rig: Rig) -> None:
    """It ran here before: its resource may have another use now, its pods are still there."""
    rig.device_plugin = "0=example.com/one"
    async with rig.device_manager() as manager:
        manager.pods["old", "job"] = {RESOURCE: ids(0, 7), "example.com/nic": ["nic-6"]}
        async with rig.registered():
            await rig.published()
            assert pool(rig) == [f"npu-{number}" for number in range(1, 7)]
            await manager.wait_for("example.com/one")
            manager.pods.clear()
            await manager.wait_for("example.com/one", "one-0")
            await until(lambda: "npu-7" in pool(rig))


async def test_a_younger_instance_serves_once_the_older_one_has_ended(rig: Rig) -> None:
    """With flags of its own; until then the kubelet hears nothing of it."""
    rig.device_plugin = "0-1"
    async with rig.device_manager() as manager, trio.open_nursery() as nursery:
        older = trio.CancelScope()

        async def run_older(*, task_status: trio.TaskStatus[None]) -> None:
            with older:
                await daemon.run(rig.settings, task_status=task_status)

        await nursery.start(run_older)
        await manager.wait_for(RESOURCE, *ids(0, 1))
        changes = {"device_plugin": "1-2", "pod_uid": "b"}
        nursery.start_soon(daemon.run, rig.settings.model_copy(update=changes))
        await until(rig.endpoints("b").control.exists)
        await allocated(manager, "train", 0)
        assert len(manager.registrations) == 1
        older.cancel()
        await manager.wait_for(RESOURCE, *ids(1, 2))
        assert len(manager.registrations) == 2
        assert in_file(rig) == ids(0, 1, 2)
        nursery.cancel_scope.cancel()


async def test_an_instance_owns_the_node_until_its_resources_have_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop lets an allocation end, and the next instance serves no resource meanwhile."""
    monkeypatch.setattr(allocation, "IN_USE_SECONDS", 0.3)
    rig.device_plugin = "0-1"
    has_ended = False

    async def allocate() -> None:
        nonlocal has_ended
        with pytest.raises(RpcError, match="npu-0 is still in use"):
            await allocated(manager, "train", 0)
        has_ended = True

    async def take_over() -> None:
        lock = FileLock(rig.settings.plugin_directory / "publisher.lock")
        await until(lock.try_lock)
        assert has_ended
        lock.close()

    async with rig.device_manager() as manager, trio.open_nursery() as nursery:
        with rig.board.control() as control:
            async with rig.daemon():
                await manager.wait_for(RESOURCE, *ids(0, 1))
                control.set_processes(0, [(4711, 1 << 20)])
                nursery.start_soon(allocate)
                await trio.lowlevel.checkpoint()
                await manager.preferred(RESOURCE, 1, available=ids(1))  # on the same connection
                nursery.start_soon(take_over)


async def test_dies_that_are_shared_together_are_whole(
    folder: Path, simulator: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The message says what the operator can do."""
    board = load_profile("a3-16")
    changes: dict[str, Any] = {"device_plugin": "0-1", "device_plugin_shares": 4}
    async with (
        served_rig(folder, simulator, profile=board, **changes) as rig,
        rig.device_manager() as manager,
        rig.daemon(),
    ):
        await manager.wait_for(RESOURCE, *ids(0, 1))
    (said,) = (one for one in caplog.records if "--device-plugin-shares" in one.message)
    assert said.__dict__["npus"] == ["npu-0", "npu-1"]
